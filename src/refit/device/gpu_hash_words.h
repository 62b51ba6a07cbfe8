// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of device/gpu_hash.h on single words and tiles, shared by the scalar form and the kernel (which is
// compiled so that it may call constexpr functions). All of it wraps.

#pragma once

#include <cstdint>

namespace refit::device::gpu_hash {

inline constexpr std::uint32_t kSeed1 = 0x243F6A88;
inline constexpr std::uint32_t kSeed2 = 0x02C74EE7;  // kSeed1 * 9E3779B1 ^ DEADBEEF

constexpr std::uint32_t Mix(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85EBCA6B;
  x = (x ^ (x >> 13)) * 0xC2B2AE35;
  return x ^ (x >> 16);
}

// What word `value` at index i of the tensor (mod 2^32) adds to its tile's first and second sum.
constexpr std::uint32_t First(std::uint32_t value, std::uint32_t i) {
  return Mix(value ^ ((i * 0x27D4EB2D + kSeed1) ^ ((i << 15) | (i >> 17))));
}
constexpr std::uint32_t Second(std::uint32_t value, std::uint32_t i) {
  return Mix(value ^ ((i * 0x165667B1 + kSeed2) ^ ((i << 13) | (i >> 19))));
}

// What a tile adds to the tensor's sum. padded: the tensor's size, rounded up to 4, mod 2^32.
constexpr std::uint64_t Tile(std::uint32_t first, std::uint32_t second, std::uint32_t padded) {
  return (static_cast<std::uint64_t>(Mix(first ^ padded)) << 32) + Mix(second ^ padded);
}

constexpr std::uint32_t Padded(std::uint64_t total) {
  return static_cast<std::uint32_t>((total + 3) & ~std::uint64_t{3});
}

}  // namespace refit::device::gpu_hash
