// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes a failing plan small: fewer faults first (delta debugging), then a smaller fleet, then rounder times.

#pragma once

#include <cstdint>
#include <functional>

#include "sim/plan.h"

namespace refit::sim {

using StillFails = std::function<bool(const Plan&)>;

struct Shrunk {
  Plan plan;  // fails as well, and no single step makes it smaller
  std::uint32_t tried = 0;
};
// Never asks about a plan that CheckPlan refuses. Gives up after so many tries, with the smallest so far.
Shrunk Shrink(const Plan& plan, const StillFails& fails, std::uint32_t most_tries = 5000);

}  // namespace refit::sim
