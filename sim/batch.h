// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Many seeds, over several processes: one that dies or hangs costs its seed alone, and is reported with it.

#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan.h"
#include "sim/run.h"

namespace refit::sim {

inline constexpr std::size_t kFaultKinds = static_cast<std::size_t>(FaultKind::kCount);

struct Totals {
  std::uint64_t runs = 0;
  std::uint64_t requests = 0;
  std::uint64_t commits = 0;
  std::uint64_t steps = 0;
  std::uint64_t violations = 0;            // safety, and commands that should have been refused
  std::uint64_t liveness_failures = 0;     // INV-8, L1, L2, L3
  std::uint64_t died = 0;                  // a check of our own failed, or it hung
  std::uint64_t repeated = 0;              // run twice
  std::uint64_t unequal = 0;               // of those, with another hash (G20)
  std::uint64_t hash = 0;                  // of all traces, whatever the order
  std::array<std::uint64_t, 64> arrows{};  // taken, of fleet::SlotArrows(): in how many runs
  std::array<std::uint64_t, kFaultKinds> drawn{};
  std::array<std::uint64_t, kFaultKinds> happened{};

  void Add(const Totals& other);
  std::uint64_t failed() const { return violations + liveness_failures + died + unequal; }
};

struct Failure {
  std::uint64_t seed = 0;
  std::string checker;  // or "died", "hung", "unequal"
  std::string what;
};

struct Batch {
  Totals totals;
  std::vector<Failure> failures;  // of the lowest seeds
  double seconds = 0;
};

struct BatchOptions {
  std::uint64_t from = 0;
  std::uint64_t seeds = 0;
  std::uint32_t jobs = 1;
  Checkers on = Checkers().set();
  Checkers ignored;                // they may end a run, and that is no failure
  std::uint32_t repeat_every = 0;  // each so many-th seed is run twice
  std::uint64_t stop_after = 0;    // failures; 0: goes on
  double hung_after_s = 60;        // one run
  std::function<Plan(std::uint64_t seed)> draw = DrawPlan;
  RunResult (*run)(const Plan& plan, const RunOptions& options) = Run;
  std::function<void(const Totals&)> progress;  // ten times a second, in the caller
};
Batch RunBatch(const BatchOptions& options);

// One run in a process of its own: how it failed, none where it did not.
std::optional<Failure> RunApart(const Plan& plan, RunResult (*run)(const Plan&, const RunOptions&) = Run);

bool IsLiveness(Checker checker);

}  // namespace refit::sim
