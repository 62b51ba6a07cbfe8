// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace refit::engine::reference {

double Sampler::NextUniform() {
  state_ += 0x9E3779B97F4A7C15ULL;  // splitmix64
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

std::int32_t Sampler::Choose(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options_.temperature <= 0) {
    return static_cast<std::int32_t>(best - logits.begin());
  }
  struct Candidate {
    double weight;
    std::int32_t token;
  };
  std::vector<Candidate> candidates(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight =
        std::exp((static_cast<double>(logits[i]) - static_cast<double>(*best)) / options_.temperature);
    candidates[i] = {weight, static_cast<std::int32_t>(i)};
    sum += weight;
  }
  if (options_.top_p < 1) {
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
    });
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates.size() && (count == 0 || kept < options_.top_p * sum)) {
      kept += candidates[count].weight;
      ++count;
    }
    candidates.resize(count);
    sum = kept;
  }
  double left = NextUniform() * sum;
  for (const Candidate& candidate : candidates) {
    left -= candidate.weight;
    if (left < 0) {
      return candidate.token;
    }
  }
  return candidates.back().token;
}

}  // namespace refit::engine::reference
