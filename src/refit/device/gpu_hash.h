// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The hash that SGLang's /weights_checker gives for parameters in GPU memory (docs/spec/sglang-wire.md §2.13), and
// refit's digest of tensors in GPU memory, where XXH3 would have to run alone through gigabytes (docs/decisions/0005).
// The scalar form is the kernel's oracle. All arithmetic wraps.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"
#include "refit/device/hash.h"

namespace refit::device {

inline constexpr ByteCount kGpuHashTile = 32 * kKiB;  // 8,192 words of 32 bit

// The sum over the tiles of one part of a tensor: bytes [offset, offset + part.size()) of `total`. offset is a multiple
// of kGpuHashTile; so is part.size(), but for the last part. Sums of all parts, added, give the tensor's.
std::uint64_t GpuHashSum(Bytes part, ByteCount offset, ByteCount total);
// The tensor's hash from its sum. 0 for an empty tensor.
std::uint64_t FinishGpuHash(std::uint64_t sum, ByteCount total);
std::string GpuHashText(std::uint64_t hash);                // 16 hexadecimal digits
std::unique_ptr<ParameterHasher> MakeGpuParameterHasher();  // streams; for MakeParameterHasher

}  // namespace refit::device
