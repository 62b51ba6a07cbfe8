// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/scenario.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "refit/base/str.h"

namespace refit::sim {
namespace {

constexpr std::string_view kBar = "---\n";
// The second word of a trace's line.
constexpr std::array<std::string_view, 12> kTold = {"fault",   "launch", "agent",   "reply",  "policy", "slot",
                                                    "journal", "router", "request", "answer", "stop",   "violation"};

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    lines.push_back(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

bool IsTold(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(' ', line.find_first_of(' ', line.find_first_not_of(' ')));
  if (begin == std::string_view::npos) {
    return false;
  }
  const std::string_view topic = line.substr(begin, line.find_first_of(" :", begin) - begin);
  return std::find(kTold.begin(), kTold.end(), topic) != kTold.end();
}

}  // namespace

Result<Scenario> ParseScenario(std::string_view text) {
  const std::size_t bar = text.starts_with(kBar) ? 0 : text.find("\n---\n") + 1;
  if (!text.starts_with("# ")) {
    return InvalidArgument("the first line says not what the scenario shows", "write it there, behind '# '");
  }
  if (bar == 0) {
    return InvalidArgument("the line '---' is missing", "put it between the plan and what is expected");
  }
  Scenario scenario{.above = std::string(text.substr(0, bar + kBar.size())),
                    .plan = {},
                    .expected = std::string(text.substr(bar + kBar.size()))};
  REFIT_ASSIGN_OR_RETURN(scenario.plan, ParsePlan(text.substr(0, bar)));
  return scenario;
}

std::string Summarize(const std::vector<std::string>& trace, const RunResult& result) {
  std::string summary;
  for (const std::string& line : trace) {
    if (IsTold(line)) {
      summary += line + "\n";
    }
  }
  summary += StrCat(result.requests, " requests, ", result.commits, " commits, ");
  return summary + (result.violations.empty() ? std::string("no violation\n")
                                              : StrCat("violation of ", ToString(result.violations.front().checker),
                                                       ": ", result.violations.front().what, "\n"));
}

ScenarioRun RunScenario(const Scenario& scenario, RunResult (*run)(const Plan&, const RunOptions&)) {
  std::vector<std::string> trace;
  RunOptions options;
  options.trace = &trace;
  const RunResult result = run(scenario.plan, options);
  ScenarioRun done{.summary = Summarize(trace, result), .status = {}, .diff = {}};
  done.diff = DiffLines(scenario.expected, done.summary);
  for (std::size_t i = 0; i < scenario.plan.faults.size(); ++i) {
    if (i >= result.faults_happened.size() || !result.faults_happened[i]) {
      done.status = FailedPrecondition(StrCat("fault ", i + 1, " of the plan did not happen"),
                                       "give it a moment that comes; a scenario shows its faults");
    }
  }
  if (!done.diff.empty()) {
    done.status =
        FailedPrecondition("something else happened than is expected", "if that is right, accept it with --rewrite");
  }
  if (!result.violations.empty()) {
    done.status = Internal(
        StrCat("violation of ", ToString(result.violations.front().checker), ": ", result.violations.front().what));
  }
  return done;
}

// By the longest common subsequence: scenarios are short.
std::string DiffLines(std::string_view before, std::string_view after) {
  if (before == after) {
    return "";
  }
  const std::vector<std::string_view> old_lines = LinesOf(before);
  const std::vector<std::string_view> new_lines = LinesOf(after);
  const std::size_t width = new_lines.size() + 1;
  std::vector<std::uint32_t> common((old_lines.size() + 1) * width, 0);  // of what follows
  for (std::size_t i = old_lines.size(); i-- > 0;) {
    for (std::size_t j = new_lines.size(); j-- > 0;) {
      common[i * width + j] = old_lines[i] == new_lines[j]
                                  ? common[(i + 1) * width + j + 1] + 1
                                  : std::max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  std::string diff;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < old_lines.size() || j < new_lines.size()) {
    if (i < old_lines.size() && j < new_lines.size() && old_lines[i] == new_lines[j]) {
      diff += StrCat("  ", old_lines[i++], "\n");
      ++j;
    } else if (j == new_lines.size() ||
               (i < old_lines.size() && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      diff += StrCat("- ", old_lines[i++], "\n");
    } else {
      diff += StrCat("+ ", new_lines[j++], "\n");
    }
  }
  return diff;
}

}  // namespace refit::sim
