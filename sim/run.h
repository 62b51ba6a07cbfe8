// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs a plan: the shipped machines in one thread and virtual time, checked after every step.

#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plan.h"

namespace refit::sim {

// The one list of settled C18. kRefused: a command that must be refused took effect (C19).
enum class Checker : std::uint8_t {
  kInv1,
  kInv2,
  kInv3,
  kInv4,
  kInv5,
  kInv6,
  kInv7,
  kInv8,
  kS4,
  kS6,
  kS7,
  kS8,
  kL1,
  kL2,
  kL3,
  kRefused,
  kCount
};
std::string_view ToString(Checker checker);  // "INV-1", …, "S8", "L1", …, "refused"
using Checkers = std::bitset<static_cast<std::size_t>(Checker::kCount)>;

struct Violation {
  Checker checker;
  Duration at;
  std::string what;
};

struct RunOptions {
  Checkers on = Checkers().set();
  // Every event as a line, "1234567 us  who …"; null: only its hash is kept. scenario.cc says which lines people
  // follow.
  std::vector<std::string>* trace = nullptr;
};

struct RunResult {
  std::uint64_t trace_hash = 0;
  std::uint64_t steps = 0;
  Duration ended{};                   // virtual time
  std::vector<Violation> violations;  // the first one ends the run
  std::uint32_t requests = 0;
  std::uint32_t commits = 0;
  std::bitset<64> arrows;             // of fleet::SlotArrows(), taken
  std::vector<bool> faults_happened;  // of plan.faults, in order
};

RunResult Run(const Plan& plan, const RunOptions& options);

}  // namespace refit::sim
