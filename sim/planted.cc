// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/planted.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "refit/base/check.h"
#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "sim/fault_table.h"

namespace refit::sim {
namespace {

std::vector<std::string> Split(std::string_view text, std::string_view at) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t begin = text.find_first_not_of(at);
    if (begin == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(begin);
    parts.emplace_back(text.substr(0, text.find_first_of(at)));
    text.remove_prefix(parts.back().size());
  }
}

Checkers Liveness() {
  Checkers checkers;
  for (std::size_t i = 0; i < checkers.size(); ++i) {
    checkers.set(i, IsLiveness(static_cast<Checker>(i)));
  }
  return checkers;
}

Result<Checkers> CheckersOf(std::string_view text) {
  Checkers checkers;
  for (const std::string& name : Split(text, ",")) {
    std::size_t at = 0;
    while (at < checkers.size() && ToString(static_cast<Checker>(at)) != name) {
      ++at;
    }
    if (at == checkers.size()) {
      return InvalidArgument(StrCat("there is no checker ", name), "names are those of sim/run.h, like INV-2 or S4");
    }
    checkers.set(at);
  }
  return checkers;
}

Result<std::vector<FaultKind>> KindsOf(std::string_view text) {
  std::vector<FaultKind> kinds;
  for (const std::string& name : Split(text, ",")) {
    const auto row = std::ranges::find(FaultTable(), std::string_view(name), &FaultRow::name);
    if (row == FaultTable().end()) {
      return InvalidArgument(StrCat("there is no fault ", name), "names are those of refit-sim --seeds");
    }
    kinds.push_back(row->kind);
  }
  return kinds;
}

Result<PlantedRow> RowFrom(const std::vector<std::string>& words, const ReadText& read) {
  PlantedRow row;
  if (words.size() < 4) {
    return InvalidArgument("a row has at least four words", "write NAME MUTANTS CHECKERS BUDGET [SETTING=VALUE …]");
  }
  row.name = words[0];
  row.mutants = Split(words[1], "+");
  row.by_text = words[2];
  const std::size_t bar = std::min(words[2].find('|'), words[2].size());
  REFIT_ASSIGN_OR_RETURN(row.by, CheckersOf(std::string_view(words[2]).substr(0, bar)));
  REFIT_ASSIGN_OR_RETURN(row.also, CheckersOf(std::string_view(words[2]).substr(std::min(bar + 1, words[2].size()))));
  const auto [end, error] = std::from_chars(words[3].data(), words[3].data() + words[3].size(), row.budget);
  if (error != std::errc() || *end != '\0' || row.budget == 0) {
    return InvalidArgument(StrCat("'", words[3], "' is no number of runs"), "write a budget, like 20000");
  }
  for (std::size_t i = 4; i < words.size(); ++i) {
    constexpr std::string_view kFaults = "faults=";
    if (words[i].starts_with(kFaults)) {
      REFIT_ASSIGN_OR_RETURN(row.faults, KindsOf(words[i].substr(kFaults.size())));
      continue;
    }
    constexpr std::string_view kPlan = "plan=";
    if (words[i].starts_with(kPlan)) {
      REFIT_ASSIGN_OR_RETURN(const std::string text, read(words[i].substr(kPlan.size())));
      REFIT_ASSIGN_OR_RETURN(row.plan, ParsePlan(PlanOf(text)));
      continue;
    }
    row.settings += words[i] + "\n";
    std::replace(row.settings.begin(), row.settings.end(), '=', ' ');
  }
  Plan plan;
  REFIT_RETURN_IF_ERROR(ReadInto(row.settings, plan));
  return row;
}

}  // namespace

Result<std::vector<PlantedRow>> ParsePlanted(std::string_view text, const ReadText& read) {
  std::vector<PlantedRow> rows;
  std::uint32_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    const std::vector<std::string> words = Split(line, " \t\r");
    if (words.empty() || words.front().starts_with('#')) {
      continue;
    }
    const Result<PlantedRow> row = RowFrom(words, read);
    if (!row.ok()) {
      return row.status().WithContext(StrCat("line ", number));
    }
    rows.push_back(*row);
  }
  return rows;
}

Plan DrawPlanOf(std::uint64_t seed, const PlantedRow& row) {
  if (row.plan) {
    Plan plan = *row.plan;
    plan.seed = seed;
    return plan;
  }
  const Plan drawn = row.faults.empty() ? DrawPlan(seed) : DrawPlanOf(seed, row.faults);
  Plan plan = drawn;
  plan.faults.clear();
  const auto override = [&] { REFIT_CHECK(ReadInto(row.settings, plan).ok(), "ParsePlanted has read these settings"); };
  override();
  if (!CheckPlan(plan).ok()) {  // what was drawn for other sizes
    plan.engines = 2;
    plan.tp_size = 1;
    plan.policies = 2;
    plan.attached.reset();
    override();
  }
  for (const Fault& fault : drawn.faults) {
    plan.faults.push_back(fault);
    if (!CheckPlan(plan).ok()) {
      plan.faults.pop_back();
    }
  }
  return plan;
}

PlantedResult RunPlanted(const PlantedRow& row, std::uint32_t jobs, RunResult (*run)(const Plan&, const RunOptions&)) {
  PlantedResult result;
  BatchOptions options;
  options.seeds = row.budget;
  options.jobs = jobs;
  options.on = row.by;
  options.stop_after = 1;
  options.run = run;
  options.draw = [&row](std::uint64_t seed) { return DrawPlanOf(seed, row); };
  mutant::ChooseAll(row.mutants);
  const Batch search = RunBatch(options);
  result.runs = search.totals.runs;
  for (const Failure& failure : search.failures) {
    const bool named = failure.checker != "died" && failure.checker != "hung";
    result.found = result.found || named;
    (named ? result.by : result.other) = failure;
  }
  // The seeds up to the one that showed it, within reason.
  // Those of liveness stay on where they are excused: a run that gets nowhere has to end.
  options.on = ~(row.by | row.also) | (row.also & Liveness());
  options.ignored = row.also;
  options.seeds = std::min(row.budget, std::clamp<std::uint64_t>(result.runs, 300, 2000));
  const Batch others = RunBatch(options);
  mutant::ChooseAll({});
  result.others = others.totals.runs;
  if (!others.failures.empty()) {
    result.other = others.failures.front();
  }
  result.only_by_those = result.other.checker.empty();
  return result;
}

}  // namespace refit::sim
