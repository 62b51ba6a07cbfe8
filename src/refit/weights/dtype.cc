// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/dtype.h"

#include <array>
#include <cstddef>

namespace refit::weights {
namespace {

struct Row {
  ByteCount item_size;
  std::string_view torch_name;
  std::string_view safetensors_name;
};

// In the order of DType.
constexpr std::array<Row, 12> kRows = {{
    {1, "bool", "BOOL"},
    {1, "uint8", "U8"},
    {1, "int8", "I8"},
    {2, "int16", "I16"},
    {4, "int32", "I32"},
    {8, "int64", "I64"},
    {1, "float8_e4m3fn", "F8_E4M3"},
    {1, "float8_e5m2", "F8_E5M2"},
    {2, "float16", "F16"},
    {2, "bfloat16", "BF16"},
    {4, "float32", "F32"},
    {8, "float64", "F64"},
}};
static_assert(kRows.size() == static_cast<std::size_t>(DType::kFloat64) + 1);

const Row& RowOf(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

std::optional<DType> Find(std::string_view Row::* column, std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].*column == name) {
      return static_cast<DType>(i);
    }
  }
  return std::nullopt;
}

}  // namespace

ByteCount ItemSize(DType dtype) { return RowOf(dtype).item_size; }
std::string_view TorchName(DType dtype) { return RowOf(dtype).torch_name; }
std::string_view SafetensorsName(DType dtype) { return RowOf(dtype).safetensors_name; }
std::optional<DType> DTypeFromTorchName(std::string_view name) { return Find(&Row::torch_name, name); }
std::optional<DType> DTypeFromSafetensorsName(std::string_view name) { return Find(&Row::safetensors_name, name); }

}  // namespace refit::weights
