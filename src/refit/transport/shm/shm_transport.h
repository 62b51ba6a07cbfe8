// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Two processes of one host, through POSIX shared memory. Loads are mapped in place; Fetch is there for whoever wants a
// copy of its own. Both processes must see the same /dev/shm and the same pids.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "refit/device/shared_memory.h"
#include "refit/transport/transport.h"

namespace refit::transport {

// What a descriptor "shm:<name>:<size>" says, for who must name the object to an engine (SharedMemory::Open, AddName).
struct ShmObject {
  std::string name;  // of our form, hence no path to anything else
  ByteCount size = 0;
};
Result<ShmObject> ParseShmDescriptor(const Descriptor& descriptor);  // safe on text from outside

class ShmTransport final : public Transport {
 public:
  ShmTransport();
  ~ShmTransport() override = default;  // unlinks what it allocated

  // Memory that Export accepts, a new object of its own. what: letters, digits, '-'.
  Result<MutableBytes> Allocate(std::string_view what, ByteCount size);
  // Gives it back, exported or not: peers that mapped it keep the memory, nobody else gets it. Unknown: nothing
  // happens.
  void Release(MutableBytes memory);

  std::string_view name() const override { return "shm"; }
  bool can_map_in_place() const override { return true; }
  // memory: exactly what Allocate gave.
  Result<Descriptor> Export(device::Memory memory) override;
  void Unexport(const Descriptor& descriptor) override;
  Result<std::unique_ptr<Link>> Bind(std::string_view peer_address, Instant deadline) override;
  std::string Address() const override;

 private:
  std::string NextName(std::string_view what);  // needs mutex_

  std::mutex mutex_;  // the agent's and the policy's loops both allocate; never held for long
  std::vector<std::unique_ptr<device::SharedMemory>> objects_;
  const std::string tag_;  // tells this transport's names from those of another one in the same process
  std::uint64_t next_name_ = 1;
};

}  // namespace refit::transport
