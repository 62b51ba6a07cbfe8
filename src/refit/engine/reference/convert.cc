// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/convert.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "refit/engine/reference/stream_copy.h"

namespace refit::engine::reference {
namespace {

template <typename T>
T ReadAs(const std::byte* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

// A finite value of a binary format with one sign bit, `exponent` bits and `mantissa` bits.
float FromSmallFloat(std::uint32_t bits, int exponent, int mantissa, int bias) {
  const std::uint32_t sign = bits >> (exponent + mantissa);
  const std::uint32_t field = (bits >> mantissa) & ((1U << exponent) - 1);
  const std::uint32_t fraction = bits & ((1U << mantissa) - 1);
  const float scale = field == 0 ? static_cast<float>(fraction) : static_cast<float>(fraction + (1U << mantissa));
  const float value = std::ldexp(scale, static_cast<int>(field == 0 ? 1 : field) - bias - mantissa);
  return sign != 0 ? -value : value;
}

float FromFloat16(std::uint16_t bits) {
  if ((bits & 0x7C00U) == 0x7C00U) {
    const float special =
        (bits & 0x3FFU) != 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    return (bits & 0x8000U) != 0 ? -special : special;
  }
  return FromSmallFloat(bits, 5, 10, 15);
}

float FromFloat8E4m3(std::uint8_t bits) {
  return (bits & 0x7FU) == 0x7FU ? std::numeric_limits<float>::quiet_NaN() : FromSmallFloat(bits, 4, 3, 7);
}

float ReadElement(weights::DType dtype, const std::byte* source) {
  switch (dtype) {
    case weights::DType::kBool: return ReadAs<std::uint8_t>(source) != 0 ? 1.0F : 0.0F;
    case weights::DType::kUint8: return static_cast<float>(ReadAs<std::uint8_t>(source));
    case weights::DType::kInt8: return static_cast<float>(ReadAs<std::int8_t>(source));
    case weights::DType::kInt16: return static_cast<float>(ReadAs<std::int16_t>(source));
    case weights::DType::kInt32: return static_cast<float>(ReadAs<std::int32_t>(source));
    case weights::DType::kInt64: return static_cast<float>(ReadAs<std::int64_t>(source));
    case weights::DType::kFloat8E4m3: return FromFloat8E4m3(ReadAs<std::uint8_t>(source));
    case weights::DType::kFloat8E5m2: return FromFloat16(static_cast<std::uint16_t>(ReadAs<std::uint8_t>(source) << 8));
    case weights::DType::kFloat16: return FromFloat16(ReadAs<std::uint16_t>(source));
    case weights::DType::kBfloat16: return FromBfloat16(ReadAs<std::uint16_t>(source));
    case weights::DType::kFloat32: return ReadAs<float>(source);
    case weights::DType::kFloat64: return static_cast<float>(ReadAs<double>(source));
  }
  return 0.0F;
}

}  // namespace

std::uint16_t ToBfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

void ConvertToBfloat16(weights::DType dtype, const std::byte* source, std::size_t count, std::uint16_t* target) {
  if (dtype == weights::DType::kBfloat16) {
    StreamCopy(reinterpret_cast<std::byte*>(target), source, count * sizeof *target);
    return;
  }
  const std::size_t item = weights::ItemSize(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    target[i] = ToBfloat16(ReadElement(dtype, source + i * item));
  }
}

}  // namespace refit::engine::reference
