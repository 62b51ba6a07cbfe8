// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Seeded randomness for the core, which gets it as an argument: the same numbers on every compiler. Not for secrets.

#pragma once

#include <cstdint>

namespace refit {

// SplitMix64 (Steele, Lea, Flood 2014). A value.
class Prng {
 public:
  explicit constexpr Prng(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  // In [0, bound); bound is not 0.
  constexpr std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace refit
