// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a tensor is, without its bytes.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/weights/dtype.h"

namespace refit::weights {

inline constexpr std::size_t kMaxRank = 8;           // dimensions (RC-BKT-14)
inline constexpr std::size_t kMaxNameLength = 1024;  // bytes of UTF-8

using Shape = std::vector<std::int64_t>;  // {} is a scalar

struct TensorSpec {
  std::string name;  // the Hugging Face name
  DType dtype = DType::kBfloat16;
  Shape shape;  // rows first, row-major, contiguous

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

std::string ToString(const Shape& shape);      // "[576, 192]"
std::string ToString(const TensorSpec& spec);  // "model.norm.weight bfloat16[576]"

// Bytes of the whole tensor. Fails on a negative dimension, more than kMaxRank dimensions, an empty or overlong name,
// or a product that does not fit: safe on numbers from outside.
Result<ByteCount> SizeOf(const TensorSpec& spec);

}  // namespace refit::weights
