// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What one engine incarnation keeps for receiving, from one transfer to the next: where loads lie in place, links to
// policy workers, and memory of its own for what comes over them.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/cuda.h"
#include "refit/device/memory.h"
#include "refit/device/ref_counters.h"
#include "refit/runtime/load_memory.h"
#include "refit/runtime/sender_memory.h"
#include "refit/runtime/transport_set.h"
#include "refit/transport/transport.h"

namespace refit::runtime {

// Thread: the receive loop of one transfer at a time.
class ReceiverMemory {
 public:
  // gpus: the GPU of each TP rank, as this process numbers them; empty: the engine loads from host memory.
  static Result<std::unique_ptr<ReceiverMemory>> Make(TransportSet& transports, Incarnation incarnation,
                                                      std::vector<device::GpuOrdinal> gpus);

  SenderMemory& in_place() { return in_place_; }
  TransportSet& transports() { return transports_; }

  struct LinkEnd {
    explicit LinkEnd(LoadMemory own) : memory(std::move(own)) {}
    LoadMemory memory;
    std::string transport;
    std::string address;
    std::unique_ptr<transport::Link> link;
    std::unique_ptr<device::GpuQueue> hashes;  // where loads lie in GPU memory
  };
  // The end of the stream that feeds first_rank: bound again only where the peer's address changed (RC-BIND).
  Result<LinkEnd*> Bind(std::uint32_t first_rank, const std::string& transport, const std::string& address,
                        Instant deadline);
  // Drops that link, if there is one; its loads' memory stays.
  void Close(std::uint32_t first_rank);
  // After a failed transfer: what its link was doing is unknown, so the next one binds anew.
  void DropLinks();
  // Buried twice in one life: too many (RX-XFER-07).
  bool exhausted() const;

 private:
  Result<LinkEnd*> EndOf(std::uint32_t first_rank);
  ReceiverMemory(TransportSet& transports, Incarnation incarnation, std::vector<device::GpuOrdinal> gpus,
                 std::unique_ptr<device::RefCounters> counters);

  TransportSet& transports_;
  const Incarnation incarnation_;
  const std::vector<device::GpuOrdinal> gpus_;
  const std::unique_ptr<device::RefCounters> counters_;
  SenderMemory in_place_;
  std::map<std::uint32_t, std::unique_ptr<LinkEnd>> ends_;  // by first rank
};

}  // namespace refit::runtime
