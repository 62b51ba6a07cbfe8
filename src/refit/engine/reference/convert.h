// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Between element types, as torch's copy_ converts them.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "refit/weights/dtype.h"

namespace refit::engine::reference {

inline float FromBfloat16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
std::uint16_t ToBfloat16(float value);

// `count` elements of `dtype` at `source` (any alignment) into bfloat16.
void ConvertToBfloat16(weights::DType dtype, const std::byte* source, std::size_t count, std::uint16_t* target);

}  // namespace refit::engine::reference
