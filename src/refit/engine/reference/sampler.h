// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// From logits to the next token: greedy, or seeded sampling. Same seed, same tokens.

#pragma once

#include <cstdint>
#include <span>

namespace refit::engine::reference {

struct SamplingOptions {
  double temperature = 0;  // 0: greedy, the lowest id among equals
  double top_p = 1;        // in (0, 1]
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), state_(options.seed) {}
  std::int32_t Choose(std::span<const float> logits);

 private:
  double NextUniform();  // [0, 1)
  SamplingOptions options_;
  std::uint64_t state_;
};

}  // namespace refit::engine::reference
