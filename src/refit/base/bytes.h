// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Byte spans, sizes, checked arithmetic on sizes that come from outside, hexadecimal.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace refit {

using ByteCount = std::uint64_t;
using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline constexpr ByteCount kKiB = 1024;
inline constexpr ByteCount kMiB = 1024 * kKiB;
inline constexpr ByteCount kGiB = 1024 * kMiB;

// Nothing when the result does not fit: for numbers that a file or a peer sent.
constexpr std::optional<ByteCount> CheckedAdd(ByteCount a, ByteCount b) {
  if (a > std::numeric_limits<ByteCount>::max() - b) {
    return std::nullopt;
  }
  return a + b;
}
constexpr std::optional<ByteCount> CheckedMultiply(ByteCount a, ByteCount b) {
  if (b != 0 && a > std::numeric_limits<ByteCount>::max() / b) {
    return std::nullopt;
  }
  return a * b;
}

// value rounded up to a multiple of alignment; alignment must not be 0.
constexpr ByteCount RoundUp(ByteCount value, ByteCount alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

std::string ToHex(Bytes bytes);
std::optional<std::string> FromHex(std::string_view hex);  // the bytes, as a string; nothing on bad digits

inline Bytes AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};  // without a terminator
}

}  // namespace refit
