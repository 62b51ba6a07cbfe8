// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory of the agent's own, where the pieces of one stream become loads that an engine's ranks open: POSIX objects, or
// allocations of the ranks' GPU. Loads alternate between two places, so that one is filled while the other is
// installed.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/device/cuda.h"
#include "refit/device/memory.h"
#include "refit/device/ref_counters.h"
#include "refit/device/shared_memory.h"
#include "refit/runtime/shared_load.h"
#include "refit/stream/landing_ledger.h"

namespace refit::runtime {

// One stream's, for one engine incarnation. Thread: one at a time.
class LoadMemory {
 public:
  // gpu: of the rank that reads; nothing: the host's. `stream` tells this incarnation's streams apart.
  LoadMemory(Incarnation incarnation, std::size_t stream, std::optional<device::GpuOrdinal> gpu,
             device::RefCounters* counters)
      : incarnation_(incarnation), stream_(stream), gpu_(gpu), counters_(counters) {}

  std::optional<device::GpuOrdinal> gpu() const { return gpu_; }
  // The place of the load of that number, of at least `capacity` bytes. Its turn has come (stream::LandingTurns).
  Result<SharedLoad*> Place(std::uint64_t load, ByteCount capacity);
  // Where a read may still land, the places are kept for the incarnation's life and never used again (RX-XFER-07).
  void EndTransfer(stream::LateReads reads);
  bool exhausted() const { return ledger_.exhausted(); }

 private:
  struct PlaceMemory {
    ByteCount capacity = 0;
    std::unique_ptr<device::SharedMemory> object;  // or
    std::unique_ptr<device::GpuArena> arena;
    std::unique_ptr<SharedLoad> load;
  };
  Result<PlaceMemory> Make(ByteCount capacity);

  const Incarnation incarnation_;
  const std::size_t stream_;
  const std::optional<device::GpuOrdinal> gpu_;
  device::RefCounters* const counters_;
  std::uint64_t made_ = 0;  // names are never reused
  std::array<PlaceMemory, stream::kLandingPlaces> places_;
  std::vector<PlaceMemory> graveyard_;
  stream::LandingLedger ledger_;
};

}  // namespace refit::runtime
