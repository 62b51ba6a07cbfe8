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

namespace refit::runtime {

// One stream's, for one engine incarnation. Thread: one at a time.
class LoadMemory {
 public:
  static constexpr std::size_t kPlaces = 2;

  // gpu: of the rank that reads; nothing: the host's. `stream` tells this incarnation's streams apart.
  LoadMemory(Incarnation incarnation, std::size_t stream, std::optional<device::GpuOrdinal> gpu,
             device::RefCounters* counters)
      : incarnation_(incarnation), stream_(stream), gpu_(gpu), counters_(counters) {}

  std::optional<device::GpuOrdinal> gpu() const { return gpu_; }
  // The place of the load of that number, of at least `capacity` bytes. Nobody may use the place's earlier load any
  // more.
  Result<SharedLoad*> Place(std::uint64_t load, ByteCount capacity);
  // A read may still land in the places, or a rank still read them: they are kept for the incarnation's life and never
  // used again (RX-XFER-07).
  void Bury();
  std::size_t burials() const { return burials_; }

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
  std::array<PlaceMemory, kPlaces> places_;
  std::vector<PlaceMemory> graveyard_;
  std::size_t burials_ = 0;
};

}  // namespace refit::runtime
