// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Planted bugs (settled C19): a simulator that nobody has seen fail proves nothing. A row of sim/planted/*.txt is
//
//   NAME MUTANTS CHECKERS BUDGET [SETTING=VALUE …] [faults=KIND,KIND] [plan=FILE]
//   M1+M6 RX-ID-01/no-term+RX-COMMIT-04/any-digest INV-1,INV-2 20000 link=on faults=freeze-controller
//
// Within that many runs one of the named checkers must report it; with those off nobody may. Behind a bar stand those
// that may report it as well, but need not: INV-2|refused.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"
#include "sim/batch.h"
#include "sim/run.h"

namespace refit::sim {

struct PlantedRow {
  std::string name;
  std::vector<std::string> mutants;
  Checkers by;
  Checkers also;
  std::string by_text;
  std::uint64_t budget = 0;
  std::string settings;           // lines of a plan that go before what is drawn
  std::vector<FaultKind> faults;  // drawn; none: of every kind
  std::optional<Plan> plan;       // run with each seed instead of a drawn one
};
// read gives the text of a file that a row names.
using ReadText = std::function<Result<std::string>(const std::string& file)>;
Result<std::vector<PlantedRow>> ParsePlanted(std::string_view text, const ReadText& read = nullptr);

struct PlantedResult {
  bool found = false;
  bool only_by_those = false;
  Failure by;                // found: the first
  Failure other;             // by a checker that the row does not name
  std::uint64_t runs = 0;    // until it was found
  std::uint64_t others = 0;  // runs with the row's checkers off
  bool ok() const { return found && only_by_those; }
};
// The mutants of the row are active in the workers alone.
PlantedResult RunPlanted(const PlantedRow& row, std::uint32_t jobs,
                         RunResult (*run)(const Plan&, const RunOptions&) = Run);

// The plan of that row: with its settings, without the faults that they make impossible.
Plan DrawPlanOf(std::uint64_t seed, const PlantedRow& row);

}  // namespace refit::sim
