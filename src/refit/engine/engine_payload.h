// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What one `update` call says: per TP rank, which memory object holds the load and which tensors are in it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/weights/tensor_spec.h"

namespace refit::engine {

struct PayloadTensor {
  weights::TensorSpec spec;
  ByteCount offset = 0;  // bytes from the load's start
};

// torch's manager of shared memory holds a name in 60 bytes, its end included; a longer one kills the server.
inline constexpr std::size_t kMaxShmNameSize = 59;

// A load in host shared memory: a POSIX object with torch's 64-byte header (device::LoadSlot).
struct HostLoad {
  std::string shm_name;     // "/refit-…", as shm_open takes it
  ByteCount data_size = 0;  // bytes after the header
  friend bool operator==(const HostLoad&, const HostLoad&) = default;
};

// A load in GPU memory, described by a CUDA IPC handle (docs/spec/sglang-wire.md §2.4–2.7). Values as torch wants them.
struct CudaLoad {
  std::string device_uuid;       // lower case 8-4-4-4-12, no "GPU-"
  std::string ipc_handle;        // 64 raw bytes, or 66 with torch's prefix
  ByteCount load_size = 0;       // bytes that the tensor covers
  ByteCount storage_size = 0;    // bytes of the slot
  ByteCount storage_offset = 0;  // bytes from the allocation's start
  std::string counter_name;      // POSIX shared memory with the ref counters
  std::uint64_t counter_index = 0;
  friend bool operator==(const CudaLoad&, const CudaLoad&) = default;
};

// Payload i is for the rank whose tp_rank is i (RC-PAY-03).
struct RankPayload {
  std::variant<HostLoad, CudaLoad> load;
  std::vector<PayloadTensor> tensors;
};

struct UpdateCall {
  std::vector<RankPayload> ranks;      // exactly tp of them
  std::optional<WeightVersion> label;  // weight_version, profile strict only
};

}  // namespace refit::engine
