// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Element types, by torch's attribute names ("bfloat16") and safetensors' ("BF16").

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "refit/base/bytes.h"

namespace refit::weights {

enum class DType : std::uint8_t {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat8E4m3,
  kFloat8E5m2,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};

ByteCount ItemSize(DType dtype);                                 // bytes per element
std::string_view TorchName(DType dtype);                         // "bfloat16", "float8_e4m3fn"
std::string_view SafetensorsName(DType dtype);                   // "BF16", "F8_E4M3"
std::optional<DType> DTypeFromTorchName(std::string_view name);  // nothing for an unknown name
std::optional<DType> DTypeFromSafetensorsName(std::string_view name);

}  // namespace refit::weights
