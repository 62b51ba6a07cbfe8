// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/scenario.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "refit/base/str.h"

namespace refit::sim {
namespace {

constexpr std::string_view kBar = "---\n";
std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    lines.push_back(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

bool HasAny(std::string_view line, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return line.find(word) != std::string_view::npos; });
}

// What is left out: the far end of a command and its plain answer, streams, requests of the traffic, the wire, records
// that only a successor cares about.
bool IsTold(std::string_view what) {
  const std::string_view who = what.substr(0, what.find_first_of(" :"));
  if (who == "agent") {
    return HasAny(what, {" is "}) || (HasAny(what, {" answers "}) && !HasAny(what, {" done "}));
  }
  if (who == "policy") {
    return HasAny(what, {" is "});
  }
  if (who == "engine") {
    return HasAny(what, {" is ", " failed"});
  }
  if (who == "controller") {
    return !HasAny(what, {" lost call ", " hears of ", " -> policy ", " appends SLOT", " appends BIND"});
  }
  return who == "fault" || who == "slot" || who == "router" || who == "the" || who == "violation";
}

// "1234567 us  text": the time and the text.
std::pair<std::uint64_t, std::string_view> PartsOf(std::string_view line) {
  constexpr std::string_view kUnit = " us  ";
  std::uint64_t micros = 0;
  std::from_chars(line.data(), line.data() + line.size(), micros);
  const std::size_t at = line.find(kUnit);
  return {micros, at == std::string_view::npos ? line : line.substr(at + kUnit.size())};
}

std::string TimeText(std::uint64_t micros) {
  const std::string millis = std::to_string(micros / 1000 % 1000);
  return StrCat(micros / 1'000'000, ".", std::string(3 - millis.size(), '0'), millis);
}

// "controller 0 -> agent 1: pause seq 7": whom it is for, with the colon, and the command.
std::optional<std::pair<std::string_view, std::string_view>> CommandOf(std::string_view what) {
  const std::size_t colon = what.find(": ");
  if (!what.starts_with("controller ") || what.find(" -> agent ") > colon || colon == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view command = what.substr(colon + 2);
  return std::pair(what.substr(0, colon + 1), command.substr(0, command.find(' ')));
}

// Commands to one agent share a line until something else happens.
class Summary {
 public:
  void Add(std::uint64_t micros, std::string_view what) {
    const auto command = CommandOf(what);
    if (!command) {
      open_.clear();
      lines_.push_back(StrCat(TimeText(micros), "  ", what));
      return;
    }
    const auto [line, first] = open_.emplace(command->first, lines_.size());
    if (first) {
      lines_.push_back(StrCat(TimeText(micros), "  ", command->first));
    }
    lines_[line->second] += StrCat(" ", command->second);
  }
  std::string text() const {
    std::string text;
    for (const std::string& line : lines_) {
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<std::string> lines_;
  std::map<std::string, std::size_t, std::less<>> open_;  // whom for -> its line
};

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
  Summary told;
  for (const std::string& line : trace) {
    const auto [micros, what] = PartsOf(line);
    if (what == "healing") {
      break;  // what follows is the same everywhere; how it ends is told below
    }
    if (IsTold(what)) {
      told.Add(micros, what);
    }
  }
  const std::string summary = told.text() + StrCat(result.requests, " requests, ", result.commits, " commits, ");
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
