// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How an engine rank says that it has let go of a load in GPU memory: torch's file of reference counters, a POSIX
// shared-memory object of int64 counters (docs/spec/sglang-wire.md §2.6). Exact and per rank, whatever the HTTP answer
// says.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "refit/base/status.h"
#include "refit/device/shared_memory.h"

namespace refit::device {

// One per engine incarnation: counters of a dead one stay armed for ever (RX-XFER-12). Thread: any.
class RefCounters {
 public:
  static constexpr std::size_t kCapacity = 10'000;  // torch's; a smaller file is stretched by it, and broken by that

  static Result<std::unique_ptr<RefCounters>> Create(std::string name);

  const std::string& name() const { return memory_->name(); }
  // A counter that nobody else uses: one per (load slot, rank), since ranks decrement without atomics. At most
  // kCapacity.
  std::size_t Take();
  // Right before the POST; only a counter that reads 0.
  void Arm(std::size_t index);
  bool released(std::size_t index) const;  // by the rank that it was armed for
  std::int64_t value(std::size_t index) const;

 private:
  explicit RefCounters(std::unique_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}
  std::int64_t* At(std::size_t index) const;

  std::unique_ptr<SharedMemory> memory_;
  std::size_t taken_ = 0;
};

}  // namespace refit::device
