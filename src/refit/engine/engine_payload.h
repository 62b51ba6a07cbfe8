// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What one `update` call says: per TP rank, which memory object holds the load and which tensors are in it.

#pragma once

#include <optional>
#include <string>
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
};

// Payload i is for the rank whose tp_rank is i (RC-PAY-03).
struct RankPayload {
  HostLoad load;
  std::vector<PayloadTensor> tensors;
};

struct UpdateCall {
  std::vector<RankPayload> ranks;      // exactly tp of them
  std::optional<WeightVersion> label;  // weight_version, profile strict only
};

}  // namespace refit::engine
