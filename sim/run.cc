// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/run.h"

#include "sim/world.h"

namespace refit::sim {

std::string_view ToString(Checker checker) {
  switch (checker) {
    case Checker::kInv1: return "INV-1";
    case Checker::kInv2: return "INV-2";
    case Checker::kInv3: return "INV-3";
    case Checker::kInv4: return "INV-4";
    case Checker::kInv5: return "INV-5";
    case Checker::kInv6: return "INV-6";
    case Checker::kInv7: return "INV-7";
    case Checker::kInv8: return "INV-8";
    case Checker::kS4: return "S4";
    case Checker::kS6: return "S6";
    case Checker::kS7: return "S7";
    case Checker::kS8: return "S8";
    case Checker::kL1: return "L1";
    case Checker::kL2: return "L2";
    case Checker::kL3: return "L3";
    case Checker::kRefused: return "refused";
    case Checker::kCount: break;
  }
  return "?";
}

RunResult Run(const Plan& plan, const RunOptions& options) { return World(plan, options).Run(); }

}  // namespace refit::sim
