// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/ref_counters.h"

#include <atomic>

#include "refit/base/check.h"

namespace refit::device {
namespace {

constexpr ByteCount kHeaderSize = 64;  // torch's: an int32 count at 0 of who maps the file

}  // namespace

Result<std::unique_ptr<RefCounters>> RefCounters::Create(std::string name) {
  REFIT_ASSIGN_OR_RETURN(
      std::unique_ptr<SharedMemory> memory,
      SharedMemory::Create(std::move(name), kHeaderSize + kCapacity * sizeof(std::int64_t)));  // zeroed
  std::atomic_ref(*reinterpret_cast<std::int32_t*>(memory->bytes().data())).store(1);
  return std::unique_ptr<RefCounters>(new RefCounters(std::move(memory)));
}

std::int64_t* RefCounters::At(std::size_t index) const {
  REFIT_CHECK(index < kCapacity, "the file has 10,000 counters");
  return reinterpret_cast<std::int64_t*>(memory_->bytes().data() + kHeaderSize) + index;
}

std::size_t RefCounters::Take() {
  REFIT_CHECK(taken_ < kCapacity, "an incarnation has few load slots and ranks");
  return taken_++;
}

void RefCounters::Arm(std::size_t index) {
  REFIT_CHECK(value(index) == 0, "a load slot is sent again only when its rank has let go of it");
  std::atomic_ref(*At(index)).store(1, std::memory_order_release);
}

std::int64_t RefCounters::value(std::size_t index) const {
  return std::atomic_ref(*At(index)).load(std::memory_order_acquire);
}

bool RefCounters::released(std::size_t index) const { return value(index) == 0; }

}  // namespace refit::device
