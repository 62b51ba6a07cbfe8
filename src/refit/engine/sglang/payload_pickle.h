// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Emits the pickle that update_weights_from_tensor takes with load_format "flattened_bucket", from a fixed template
// (docs/spec/sglang-wire.md §2). Opcode level, protocol 4, no FRAME, no memo. Never decodes one (RC-PAY-07).

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/engine/engine_payload.h"

namespace refit::engine::sglang {

// A load in GPU memory, described by a CUDA IPC handle (§2.4–2.7). Values as torch wants them.
struct CudaLoad {
  std::string device_uuid;       // lower case 8-4-4-4-12, no "GPU-"
  std::string ipc_handle;        // 64 raw bytes, or 66 with torch's prefix
  ByteCount load_size = 0;       // bytes that the tensor covers
  ByteCount storage_size = 0;    // bytes of the slot
  ByteCount storage_offset = 0;  // bytes from the allocation's start
  std::string counter_name;      // POSIX shared memory with the ref counters
  std::uint64_t counter_index = 0;
};

std::string PicklePayload(const RankPayload& payload);
std::string PickleCudaPayload(const CudaLoad& load, const std::vector<PayloadTensor>& tensors);

std::string Base64(std::string_view bytes);  // standard alphabet, padded, no line breaks

}  // namespace refit::engine::sglang
