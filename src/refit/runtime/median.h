// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#pragma once

#include <algorithm>
#include <vector>

namespace refit::runtime {

// Of at least one sample; the upper one of the two in the middle.
inline double Median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

}  // namespace refit::runtime
