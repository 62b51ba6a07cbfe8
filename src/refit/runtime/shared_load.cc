// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/shared_load.h"

#include <algorithm>

#include "refit/base/str.h"

namespace refit::runtime {
namespace {

// The oldest form that every torch reads, the kind of handle said outright (docs/spec/sglang-wire.md §2.5).
constexpr char kTorchHandleVersion = 1;
constexpr char kTorchHandleKind = 'c';

}  // namespace

std::variant<engine::HostLoad, engine::CudaLoad> HostSharedLoad::Describe(std::size_t /*reader*/, ByteCount used) {
  return engine::HostLoad{.shm_name = name_, .data_size = used};
}

void HostSharedLoad::AddReaders(std::size_t readers) {
  device::LoadSlot(object_).AddReaders(static_cast<std::int32_t>(readers));
}

std::string HostSharedLoad::HeldText() const { return StrCat("count ", device::LoadSlot(object_).count()); }

std::variant<engine::HostLoad, engine::CudaLoad> GpuSharedLoad::Describe(std::size_t reader, ByteCount used) {
  std::string handle{kTorchHandleVersion, kTorchHandleKind};
  handle += exported_.handle;
  return engine::CudaLoad{.device_uuid = exported_.gpu_uuid,
                          .ipc_handle = std::move(handle),
                          .load_size = used,
                          .storage_size = size_,
                          .storage_offset = exported_.offset,
                          .counter_name = counters_.name(),
                          .counter_index = CounterOf(reader)};
}

std::size_t GpuSharedLoad::CounterOf(std::size_t reader) {
  while (indices_.size() <= reader) {
    indices_.push_back(counters_.Take());
  }
  return indices_[reader];
}

void GpuSharedLoad::AddReaders(std::size_t readers) {
  for (std::size_t reader = 0; reader < readers; ++reader) {
    counters_.Arm(CounterOf(reader));
  }
}

bool GpuSharedLoad::free() const {
  return std::all_of(indices_.begin(), indices_.end(), [this](std::size_t index) { return counters_.released(index); });
}

std::string GpuSharedLoad::HeldText() const {
  const auto held =
      std::count_if(indices_.begin(), indices_.end(), [this](std::size_t index) { return !counters_.released(index); });
  return StrCat(held, " of ", indices_.size(), " counters armed");
}

}  // namespace refit::runtime
