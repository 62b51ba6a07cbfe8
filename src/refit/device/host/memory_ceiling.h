// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What this machine's memory allows for a stream of loads (settled D12): two pinned threads, one runs the very copy
// plans of the loads into two alternating slots of shared memory, the other copies each slot to where the engine's
// parameters would be. No digest, no HTTP, no payload. Measured between the real runs, so that both see the same
// machine.

#pragma once

#include <array>
#include <memory>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/shared_memory.h"
#include "refit/stream/copy_plan.h"

namespace refit::device {

class MemoryCeiling {
 public:
  // Reserves the slots (as large as the largest load) and the destination (all loads, one after the other), warm.
  // The sources outlive it.
  static Result<std::unique_ptr<MemoryCeiling>> Create(std::vector<Bytes> sources, std::vector<stream::CopyPlan> loads);

  // One pass over all loads: from the first copy in to the end of the last copy out. Thread: one at a time; starts two
  // threads and joins them.
  Result<Duration> Measure();

  // What arrived, load by load without gaps: for tests.
  Bytes destination() const { return destination_; }

 private:
  static constexpr std::size_t kSlots = 2;
  struct Load {
    stream::CopyPlan plan;
    ByteCount size = 0;
    std::size_t entry_count = 0;
    ByteCount destination_offset = 0;
  };
  struct Progress;

  MemoryCeiling() = default;
  Status CopyIn(Progress& progress);
  void CopyOut(Progress& progress);

  std::vector<Bytes> sources_;
  std::vector<Load> loads_;
  std::array<std::unique_ptr<SharedMemory>, kSlots> slots_;
  std::vector<std::byte> destination_;
};

}  // namespace refit::device
