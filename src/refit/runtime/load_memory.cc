// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/load_memory.h"

#include <utility>

#include "refit/base/check.h"
#include "refit/base/str.h"

namespace refit::runtime {

Result<SharedLoad*> LoadMemory::Place(std::uint64_t load, ByteCount capacity) {
  PlaceMemory& place = places_[load % places_.size()];
  if (place.load != nullptr && stream::LandingLedger::Reuse(place.load->readers()) == stream::MemoryFate::kReplace) {
    graveyard_.push_back(std::move(place));
    place = {};
  }
  if (place.capacity < capacity) {
    place = {};  // gives its memory back before the new one asks for some
    REFIT_ASSIGN_OR_RETURN(place, Make(capacity));
  }
  return place.load.get();
}

Result<LoadMemory::PlaceMemory> LoadMemory::Make(ByteCount capacity) {
  PlaceMemory place;
  place.capacity = capacity;
  if (gpu_.has_value()) {
    REFIT_CHECK(counters_ != nullptr, "an engine on GPUs has counters");
    REFIT_ASSIGN_OR_RETURN(place.arena, device::GpuArena::Allocate(*gpu_, capacity));
    REFIT_ASSIGN_OR_RETURN(device::GpuExport exported, device::ExportGpuMemory(place.arena->memory()));
    place.load = std::make_unique<GpuSharedLoad>(std::move(exported), capacity, place.arena->memory(), *counters_);
    return place;
  }
  const std::string name = device::IncarnationName(StrCat("s", stream_, "-", made_++), incarnation_);
  REFIT_ASSIGN_OR_RETURN(place.object, device::SharedMemory::Create(name, device::LoadSlot::ObjectSize(capacity)));
  device::LoadSlot(place.object->bytes()).Initialise();
  place.load = std::make_unique<HostSharedLoad>(place.object->bytes(), name);
  return place;
}

void LoadMemory::EndTransfer(stream::LateReads reads) {
  if (ledger_.EndTransfer(reads) == stream::MemoryFate::kKeep) {
    return;
  }
  for (PlaceMemory& place : places_) {
    if (place.load != nullptr) {
      graveyard_.push_back(std::move(place));
    }
    place = {};
  }
}

}  // namespace refit::runtime
