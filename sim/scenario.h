// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A scenario is a file: comment lines that say what it shows and which rules it proves, a plan, `---`, and what
// happened when it was last accepted. Rewritten by a flag, reviewed as a diff.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"
#include "sim/plan.h"
#include "sim/run.h"

namespace refit::sim {

struct Scenario {
  std::string above;  // the file up to and with the line `---`
  Plan plan;
  std::string expected;  // below it
};
// Refuses one that says in no comment what it shows.
Result<Scenario> ParseScenario(std::string_view text);

// The lines of a trace that people follow a run by, and how it ended.
std::string Summarize(const std::vector<std::string>& trace, const RunResult& result);

// OK where it ran without a violation, every fault happened, and what happened is what is expected.
struct ScenarioRun {
  std::string summary;
  Status status;
  std::string diff;  // lines with -, + or blank in front; empty where they are equal
};
ScenarioRun RunScenario(const Scenario& scenario, RunResult (*run)(const Plan&, const RunOptions&) = Run);

std::string DiffLines(std::string_view before, std::string_view after);

}  // namespace refit::sim
