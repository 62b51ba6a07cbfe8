// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A load as an engine's ranks find it, and the way to know that they have let go of it (RC-PAY-05): torch's count in
// the load itself on the host, torch's file of counters for GPU memory.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/device/cuda.h"
#include "refit/device/memory.h"
#include "refit/device/ref_counters.h"
#include "refit/device/shared_memory.h"
#include "refit/engine/engine_payload.h"
#include "refit/stream/slot_ledger.h"

namespace refit::runtime {

// Thread: any; one call at a time uses a load.
class SharedLoad {
 public:
  virtual ~SharedLoad() = default;
  virtual device::Memory data() const = 0;
  virtual ByteCount capacity() const = 0;
  // What the `reader`-th of the ranks that open this load is told of it; `used` bytes of it are the load.
  virtual std::variant<engine::HostLoad, engine::CudaLoad> Describe(std::size_t reader, ByteCount used) = 0;
  // Right before the POST (RC-PAY-09); every one of `readers` ranks takes itself off when it lets go.
  virtual void AddReaders(std::size_t readers) = 0;
  virtual bool free() const = 0;
  stream::Readers readers() const { return free() ? stream::Readers::kGone : stream::Readers::kThere; }
  virtual std::string HeldText() const = 0;  // "count 3"
};

// A POSIX object with torch's header; `name` is this incarnation's own.
class HostSharedLoad final : public SharedLoad {
 public:
  HostSharedLoad(MutableBytes object, std::string name) : object_(object), name_(std::move(name)) {}
  device::Memory data() const override { return device::LoadSlot(object_).data(); }
  ByteCount capacity() const override { return object_.size() - device::kLoadHeaderSize; }
  std::variant<engine::HostLoad, engine::CudaLoad> Describe(std::size_t reader, ByteCount used) override;
  void AddReaders(std::size_t readers) override;
  bool free() const override { return device::LoadSlot(object_).free(); }
  std::string HeldText() const override;

 private:
  const MutableBytes object_;
  const std::string name_;
};

// A part of an allocation of a GPU, the agent's own or a sender's.
class GpuSharedLoad final : public SharedLoad {
 public:
  // memory: empty where the agent has not mapped it (a sender's, opened by the engine's ranks alone).
  GpuSharedLoad(device::GpuExport exported, ByteCount size, device::Memory memory, device::RefCounters& counters)
      : exported_(std::move(exported)), size_(size), memory_(memory), counters_(counters) {}
  device::Memory data() const override { return memory_; }
  ByteCount capacity() const override { return size_; }
  std::variant<engine::HostLoad, engine::CudaLoad> Describe(std::size_t reader, ByteCount used) override;
  void AddReaders(std::size_t readers) override;
  bool free() const override;
  std::string HeldText() const override;

 private:
  std::size_t CounterOf(std::size_t reader);

  const device::GpuExport exported_;
  const ByteCount size_;
  const device::Memory memory_;
  device::RefCounters& counters_;     // this incarnation's
  std::vector<std::size_t> indices_;  // of its counters that are ours, by reader
};

}  // namespace refit::runtime
