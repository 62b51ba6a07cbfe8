// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// NIXL between processes and hosts, host memory and GPUs': its own UCX picks the way. docs/nixl.md says what NIXL
// cannot tell (a stopped peer, a dead one over shared memory): deadlines of ours end such waits.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "refit/exec/lane.h"
#include "refit/exec/watched.h"
#include "refit/transport/nixl/nixl_agent.h"
#include "refit/transport/transport.h"

namespace refit::transport {

class NixlTransport final : public Transport {
 public:
  // Loads the library and makes the agent, one per rank: about 0.1 s, more where there are GPUs.
  static Result<std::unique_ptr<NixlTransport>> Create(const NixlOptions& options);
  ~NixlTransport() override;
  NixlTransport(const NixlTransport&) = delete;
  NixlTransport& operator=(const NixlTransport&) = delete;

  // Registers landing memory once for all fetches into it; without this each fetch registers its own part, which is
  // dear where a NIC or a GPU is involved. Whoever frees the memory forgets it first.
  Status Prepare(device::Memory landing);
  void Forget(device::Memory landing);

  std::string_view name() const override { return "nixl"; }
  bool can_map_in_place() const override { return false; }
  Result<Descriptor> Export(device::Memory memory) override;
  void Unexport(const Descriptor& descriptor) override;
  // Peers' exports are part of their address: bind again when the address changed.
  Result<std::unique_ptr<Link>> Bind(std::string_view peer_address, Instant deadline) override;
  std::string Address() const override;

  std::uint64_t connections() const { return agent_->connections(); }  // how often a Bind had to connect

 private:
  struct Serving {
    bool stopped = false;
    bool has_exports = false;
  };

  explicit NixlTransport(std::unique_ptr<NixlAgent> agent) : agent_(std::move(agent)) {}
  void Serve();

  const std::shared_ptr<NixlAgent> agent_;  // shared with the links, which may outlive the transport
  mutable std::mutex mutex_;
  std::map<std::string, NixlAgent::RegistrationId, std::less<>> exports_;  // by the text of the descriptor
  std::map<const std::byte*, NixlAgent::RegistrationId> prepared_;         // by where the memory begins
  NixlAddress address_;                                                    // as of the last Export or Unexport
  std::uint64_t next_export_ = 1;
  exec::Watched<Serving> serving_;
  std::unique_ptr<exec::Lane> lane_;  // from the first export on: over TCP a peer's read needs this process's work
};

}  // namespace refit::transport
