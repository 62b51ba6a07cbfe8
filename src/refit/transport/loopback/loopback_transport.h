// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Both ends in one process: the backend of tests, examples and the simulator's neighbours. A fetch stays pending until
// it is polled a second time and writes nothing before, so that code which reads too early or reuses a buffer too early
// is caught (RC-RX-03).

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "refit/transport/transport.h"

namespace refit::transport {

// The wire: transports of one hub see each other. Thread: any.
class LoopbackHub {
 public:
  LoopbackHub() = default;
  LoopbackHub(const LoopbackHub&) = delete;
  LoopbackHub& operator=(const LoopbackHub&) = delete;

 private:
  friend class LoopbackTransport;
  friend class LoopbackLink;
  // The exports of one transport. Shared by the transport and the links to it, which may outlive it.
  struct Endpoint {
    std::mutex mutex;  // held while bytes are read, so that Unexport returns after the last read
    bool open = true;
    std::map<std::string, Bytes, std::less<>> exports;  // by descriptor
    std::uint64_t next_export = 1;
  };

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Endpoint>, std::less<>> endpoints_;  // by address
  std::uint64_t next_address_ = 1;
};

class LoopbackTransport final : public Transport {
 public:
  explicit LoopbackTransport(LoopbackHub& hub);  // which outlives it
  ~LoopbackTransport() override;                 // its exports end; links to it fail

  std::string_view name() const override { return "loopback"; }
  bool can_map_in_place() const override { return false; }
  Result<Descriptor> Export(device::Memory memory) override;
  void Unexport(const Descriptor& descriptor) override;
  Result<std::unique_ptr<Link>> Bind(std::string_view peer_address, Instant deadline) override;
  std::string Address() const override { return address_; }

 private:
  LoopbackHub& hub_;
  std::string address_;
  std::shared_ptr<LoopbackHub::Endpoint> endpoint_;
};

}  // namespace refit::transport
