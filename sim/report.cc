// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "refit/fleet/slot.h"
#include "sim/fault_table.h"

namespace refit::sim {
namespace {

constexpr std::size_t kFailuresShown = 10;

std::string ArrowText(const fleet::SlotArrow& arrow) {
  return fmt::format("{} -> {}", ToString(arrow.from), ToString(arrow.to));
}

double RunsPerSecond(const Batch& batch) {
  return batch.seconds > 0 ? static_cast<double>(batch.totals.runs) / batch.seconds : 0;
}

std::string FaultsText(const Totals& totals) {
  std::string text;
  for (const FaultRow& row : FaultTable()) {
    const auto kind = static_cast<std::size_t>(row.kind);
    text += fmt::format("  {:<20} {:>9} drawn {:>9} happened\n", row.name, totals.drawn[kind], totals.happened[kind]);
  }
  return text;
}

}  // namespace

std::string HashText(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::vector<std::string> Uncovered(const Totals& totals) {
  std::vector<std::string> arrows;
  for (std::size_t i = 0; i < fleet::SlotArrows().size(); ++i) {
    if (totals.arrows[i] == 0) {
      arrows.push_back(ArrowText(fleet::SlotArrows()[i]));
    }
  }
  return arrows;
}

std::string BatchText(const BatchOptions& options, const Batch& batch) {
  const Totals& totals = batch.totals;
  std::string text;
  for (std::size_t i = 0; i < std::min(batch.failures.size(), kFailuresShown); ++i) {
    const Failure& failure = batch.failures[i];
    text += fmt::format("seed {}: {}: {}\n", failure.seed, failure.checker, failure.what);
  }
  text += "faults\n" + FaultsText(totals);
  const std::vector<std::string> uncovered = Uncovered(totals);
  const std::size_t arrows = fleet::SlotArrows().size();
  text += fmt::format("arrows     {} of {} taken{}{}\n", arrows - uncovered.size(), arrows,
                      uncovered.empty() ? "" : "; never: ", fmt::join(uncovered, ", "));
  text +=
      fmt::format("seeds      {} to {}, {} run twice, hash of all {}\n", options.from,
                  options.from + std::max<std::uint64_t>(options.seeds, 1) - 1, totals.repeated, HashText(totals.hash));
  text += fmt::format("runs       {} with {} requests, {} commits, {} steps in {:.1f} s ({:.0f} runs/s)\n", totals.runs,
                      totals.requests, totals.commits, totals.steps, batch.seconds, RunsPerSecond(batch));
  return text + fmt::format("violations {}, liveness failures {}, died {}, unequal {}\n", totals.violations,
                            totals.liveness_failures, totals.died, totals.unequal);
}

std::string BatchJson(const BatchOptions& options, const Batch& batch) {
  const Totals& totals = batch.totals;
  nlohmann::ordered_json json;
  json["violations"] = totals.violations;
  json["liveness_failures"] = totals.liveness_failures;
  json["died"] = totals.died;
  json["unequal"] = totals.unequal;
  json["runs"] = totals.runs;
  json["from"] = options.from;
  json["repeated"] = totals.repeated;
  json["requests"] = totals.requests;
  json["commits"] = totals.commits;
  json["steps"] = totals.steps;
  json["seconds"] = batch.seconds;
  json["hash"] = HashText(totals.hash);
  json["arrows"]["all"] = fleet::SlotArrows().size();
  json["arrows"]["uncovered"] = Uncovered(totals);
  for (const FaultRow& row : FaultTable()) {
    const auto kind = static_cast<std::size_t>(row.kind);
    json["faults"][row.name] = {{"drawn", totals.drawn[kind]}, {"happened", totals.happened[kind]}};
  }
  json["failures"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < std::min(batch.failures.size(), kFailuresShown); ++i) {
    const Failure& failure = batch.failures[i];
    json["failures"].push_back({{"seed", failure.seed}, {"checker", failure.checker}, {"what", failure.what}});
  }
  return json.dump(2) + "\n";
}

}  // namespace refit::sim
