// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// refit-sim: reads the command line and does one thing: many seeds, one seed, a plan, a shrink, scenarios, planted
// bugs.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "refit/base/mutant.h"
#include "sim/batch.h"
#include "sim/planted.h"
#include "sim/report.h"
#include "sim/scenario.h"
#include "sim/shrink.h"

namespace refit::sim {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr std::uint32_t kRepeatEvery = 20;      // 5 % of the seeds (G20)
constexpr std::uint64_t kSeedsCompared = 2000;  // between the shipped library and the one with planted bugs

struct Words {
  std::uint64_t seeds = 0;
  std::uint64_t from = 0;
  std::uint32_t jobs = std::max(1U, std::thread::hardware_concurrency());
  bool json = false;
  bool all_arrows = false;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> shrink;
  std::string plan;
  std::string scenarios;
  bool rewrite = false;
  std::string planted;
  std::string rows = "sim/planted";
  std::vector<std::string> mutants;
  std::string shipped_hash;  // given by refit-sim to refit-sim-planted
};

int Fail(const Status& status) {
  fmt::print(stderr, "error: {}\n", status.ToString());
  return kUsage;
}

Result<std::string> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    return NotFound(fmt::format("cannot read {}", path.string()), "name a file that is there");
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Regular files *.txt, by name.
Result<std::vector<std::filesystem::path>> TextFiles(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".txt") {
      files.push_back(entry.path());
    }
  }
  if (error || files.empty()) {
    return NotFound(fmt::format("{} has no file *.txt", folder), "start it in the folder of the sources");
  }
  std::sort(files.begin(), files.end());
  return files;
}

// ---- many seeds

BatchOptions OptionsOf(const Words& words) {
  BatchOptions options;
  options.from = words.from;
  options.seeds = words.seeds;
  options.jobs = words.jobs;
  options.repeat_every = kRepeatEvery;
  if (::isatty(STDERR_FILENO) == 1) {
    options.progress = [seeds = words.seeds](const Totals& totals) {
      fmt::print(stderr, "\r{} of {} runs, {} failed ", totals.runs, seeds, totals.failed());
    };
  }
  return options;
}

int RunSeeds(const Words& words) {
  const BatchOptions options = OptionsOf(words);
  const Batch batch = RunBatch(options);
  if (options.progress) {
    fmt::print(stderr, "\r\x1b[K");
  }
  fmt::print("{}", words.json ? BatchJson(options, batch) : BatchText(options, batch));
  if (!batch.failures.empty() && !words.json) {
    fmt::print("see it: refit-sim --seed {0}; make it small: refit-sim --shrink {0}\n", batch.failures.front().seed);
  }
  const bool covered = !words.all_arrows || Uncovered(batch.totals).empty();
  return batch.totals.failed() == 0 && covered ? kOk : kFailed;
}

// ---- one run

int RunOne(const Plan& plan) {
  std::vector<std::string> trace;
  RunOptions options;
  options.trace = &trace;
  const RunResult result = Run(plan, options);
  fmt::print("{}---\n", ToText(plan));
  for (const std::string& line : trace) {
    fmt::print("{}\n", line);
  }
  for (std::size_t i = 0; i < result.faults_happened.size(); ++i) {
    if (!result.faults_happened[i]) {
      fmt::print("fault {} did not happen\n", i + 1);
    }
  }
  for (const Violation& violation : result.violations) {
    fmt::print("violation of {} at {:.6f} s: {}\n", ToString(violation.checker), ToSeconds(violation.at),
               violation.what);
  }
  fmt::print("{} requests, {} commits, {} steps, {:.3f} s\n", result.requests, result.commits, result.steps,
             ToSeconds(result.ended));
  fmt::print("hash {}\n", HashText(result.trace_hash));
  return result.violations.empty() ? kOk : kFailed;
}

int RunPlanFile(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  const Result<Plan> plan = text ? ParsePlan(PlanOf(*text)) : Result<Plan>(text.status());
  return plan ? RunOne(*plan) : Fail(plan.status().WithContext(path));
}

int RunShrink(std::uint64_t seed) {
  const Plan plan = DrawPlan(seed);
  const std::optional<Failure> whole = RunApart(plan);
  if (!whole) {
    fmt::print("seed {} does not fail: nothing to shrink\n", seed);
    return kUsage;
  }
  const Shrunk shrunk = Shrink(plan, [&](const Plan& tried) {
    const std::optional<Failure> failure = RunApart(tried);
    return failure && failure->checker == whole->checker;
  });
  fmt::print("# {}: {}\n", whole->checker, RunApart(shrunk.plan).value_or(*whole).what);
  fmt::print("# shrunk from seed {} in {} runs; write this into a file and see it with refit-sim --plan FILE\n", seed,
             shrunk.tried);
  fmt::print("{}", ToText(shrunk.plan));
  return kFailed;
}

// ---- scenarios

Status RunOneScenario(const std::filesystem::path& path, const Words& words) {
  REFIT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  REFIT_ASSIGN_OR_RETURN(const Scenario scenario, ParseScenario(text));
  const ScenarioRun run = RunScenario(scenario);
  if (words.rewrite && !run.diff.empty()) {
    std::ofstream(path) << scenario.above << run.summary;
    fmt::print("rewritten {}\n", path.string());
    return RunScenario({scenario.above, scenario.plan, run.summary}).status;
  }
  fmt::print("{}", run.diff);
  return run.status;
}

int RunScenarios(const Words& words) {
  const auto files = TextFiles(words.scenarios);
  if (!files) {
    return Fail(files.status());
  }
  std::size_t passed = 0;
  for (const std::filesystem::path& path : *files) {
    if (const Status status = RunOneScenario(path, words); !status.ok()) {
      fmt::print("FAILED {}: {}\n", path.string(), status.ToString());
    } else {
      ++passed;
    }
  }
  fmt::print("{} of {} scenarios passed\n", passed, files->size());
  return passed == files->size() ? kOk : kFailed;
}

// ---- planted bugs

std::string HashOfFirstSeeds(std::uint32_t jobs) {
  BatchOptions options;
  options.seeds = kSeedsCompared;
  options.jobs = jobs;
  return HashText(RunBatch(options).totals.hash);
}

#ifdef REFIT_MUTANTS

bool EqualsShipped(const Words& words) {
  if (words.shipped_hash.empty()) {
    fmt::print("not compared with the shipped library: start it as refit-sim --planted\n");
    return true;
  }
  const bool equal = HashOfFirstSeeds(words.jobs) == words.shipped_hash;
  fmt::print("without any of them {} traces {} those of the shipped library\n", kSeedsCompared,
             equal ? "equal" : "DIFFER from");
  return equal;
}

void Print(const PlantedRow& row, const PlantedResult& result) {
  const std::string found = result.found ? fmt::format("{} at seed {}", result.by.checker, result.by.seed)
                                         : fmt::format("NOT FOUND in {} runs", result.runs);
  const std::string others =
      result.only_by_those
          ? fmt::format("with {} off not in {} runs", row.by_text, result.others)
          : fmt::format("but also {} at seed {}: {}", result.other.checker, result.other.seed, result.other.what);
  fmt::print("{:<28} {}, {}\n", row.name, found, others);
  std::fflush(stdout);
}

int RunPlantedBugs(const Words& words) {
  const auto files = TextFiles(words.rows);
  if (!files) {
    return Fail(files.status());
  }
  std::vector<PlantedRow> rows;
  for (const std::filesystem::path& path : *files) {
    const Result<std::string> text = ReadFile(path);
    const auto read = text ? ParsePlanted(*text, [](const std::string& file) { return ReadFile(file); })
                           : Result<std::vector<PlantedRow>>(text.status());
    if (!read) {
      return Fail(read.status().WithContext(path.string()));
    }
    std::copy_if(read->begin(), read->end(), std::back_inserter(rows),
                 [&](const PlantedRow& row) { return words.planted == "all" || words.planted == row.name; });
  }
  if (rows.empty()) {
    return Fail(NotFound(fmt::format("no planted bug is named {}", words.planted), "take a name of " + words.rows));
  }
  const bool equal = EqualsShipped(words);
  std::size_t found = 0;
  for (const PlantedRow& row : rows) {
    const PlantedResult result = RunPlanted(row, words.jobs);
    found += result.ok() ? 1U : 0U;
    Print(row, result);
  }
  fmt::print("{} of {} found\n", found, rows.size());
  return found == rows.size() && equal ? kOk : kFailed;
}

#else

// This program is the shipped library and has none; the one beside it has.
int RunPlantedBugs(const Words& words) {
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "refit-sim-planted";
  if (::access(program.c_str(), X_OK) != 0) {
    return Fail(NotFound("this build carries no planted bugs: refit-sim-planted is not beside refit-sim",
                         "build it with `ninja -C build refit-sim-planted`"));
  }
  const std::vector<std::string> arguments = {program.string(),
                                              "--planted",
                                              words.planted,
                                              "--rows",
                                              words.rows,
                                              "--jobs",
                                              std::to_string(words.jobs),
                                              "--shipped-hash",
                                              HashOfFirstSeeds(words.jobs)};
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);
  std::fflush(stdout);
  ::execv(program.c_str(), pointers.data());
  return Fail(Internal("cannot start " + program.string()));
}

#endif

int Dispatch(const Words& words) {
  mutant::ChooseAll(words.mutants);
  if (words.seed) {
    return RunOne(DrawPlan(*words.seed));
  }
  if (words.shrink) {
    return RunShrink(*words.shrink);
  }
  if (!words.plan.empty()) {
    return RunPlanFile(words.plan);
  }
  if (!words.scenarios.empty()) {
    return RunScenarios(words);
  }
  return words.planted.empty() ? RunSeeds(words) : RunPlantedBugs(words);
}

int Main(int argc, char** argv) {
  Words words;
  CLI::App app("Runs the shipped control core against a simulated world in virtual time, and checks every step.",
               "refit-sim");
  app.footer(
      "Exit codes: 0 ok; 1 a violation, a liveness failure, a difference, or a planted bug not found; 2 usage.\n"
      "Examples:\n"
      "  refit-sim --seeds 100000 --json\n"
      "  refit-sim --seed 4711\n"
      "  refit-sim --scenarios sim/scenarios --rewrite\n"
      "  refit-sim --planted all");
  auto* const what = app.add_option_group("what");
  what->add_option("--seeds", words.seeds, "runs so many seeds and sums up")->check(CLI::PositiveNumber);
  what->add_option("--seed", words.seed, "runs one; prints its plan, its trace, and last its hash");
  what->add_option("--plan", words.plan, "runs the plan of a file, or of a scenario");
  what->add_option("--shrink", words.shrink, "makes the failing plan of a seed small and prints it");
  what->add_option("--scenarios", words.scenarios, "runs every scenario of a folder and compares");
  what->add_option("--planted", words.planted, "finds the planted bugs: all, or the name of a row");
  what->require_option(1);
  app.add_option("--from", words.from, "with --seeds: the first")->needs("--seeds");
  app.add_option("--jobs", words.jobs, "worker processes")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_flag("--json", words.json, "with --seeds: one JSON object");
  app.add_flag("--all-arrows", words.all_arrows,
               "with --seeds: fails where an arrow of the slot machine was not taken");
  app.add_flag("--rewrite", words.rewrite, "with --scenarios: accepts what happens now");
  app.add_option("--rows", words.rows, "with --planted: the folder of its rows")->capture_default_str();
  app.add_option("--shipped-hash", words.shipped_hash)->group("");
#ifdef REFIT_MUTANTS
  app.add_option("--mutant", words.mutants,
                 "with --seed, --plan, --seeds: a planted bug that is active; again for more");
#endif
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Fail(InvalidArgument(error.what(), "see refit-sim --help"));
  }
  return Dispatch(words);
}

}  // namespace
}  // namespace refit::sim

int main(int argc, char** argv) { return refit::sim::Main(argc, argv); }
