// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/batch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace refit::sim {
namespace {

// A world in which what happens is a function of the seed.
RunResult FakeRun(const Plan& plan, const RunOptions& options) {
  RunResult result;
  result.trace_hash = plan.seed * 31;
  result.steps = 10;
  result.requests = plan.requests;
  result.commits = 2;
  result.arrows.set(plan.seed % 3);
  result.faults_happened.assign(plan.faults.size(), plan.seed % 2 == 0);
  if (plan.seed == 17 && options.on.test(static_cast<std::size_t>(Checker::kInv2))) {
    result.violations.push_back({Checker::kInv2, Duration(5), "engine 1 serves version 0"});
  }
  if (plan.seed == 23) {
    result.violations.push_back({Checker::kL2, Duration(5), "engine 0 stays paused"});
  }
  return result;
}

BatchOptions Options(std::uint64_t seeds) {
  BatchOptions options;
  options.seeds = seeds;
  options.jobs = 3;
  options.run = FakeRun;
  return options;
}

TEST(Batch, CountsEverySeedOnce) {
  BatchOptions options = Options(1000);
  options.from = 100;
  const Batch batch = RunBatch(options);
  EXPECT_EQ(batch.totals.runs, 1000U);
  EXPECT_EQ(batch.totals.steps, 10000U);
  EXPECT_EQ(batch.totals.commits, 2000U);
  EXPECT_EQ(batch.totals.arrows[0] + batch.totals.arrows[1] + batch.totals.arrows[2], 1000U);
  EXPECT_EQ(batch.totals.failed(), 0U);
  std::uint64_t drawn = 0;
  std::uint64_t happened = 0;
  for (std::size_t i = 0; i < kFaultKinds; ++i) {
    drawn += batch.totals.drawn[i];
    happened += batch.totals.happened[i];
  }
  EXPECT_GT(happened, 0U);
  EXPECT_GT(drawn, happened);
}

TEST(Batch, IsTheSameWhateverTheNumberOfWorkers) {
  BatchOptions options = Options(500);
  const std::uint64_t three = RunBatch(options).totals.hash;
  options.jobs = 1;
  EXPECT_EQ(RunBatch(options).totals.hash, three);
  options.seeds = 499;
  EXPECT_NE(RunBatch(options).totals.hash, three);
}

TEST(Batch, TellsSafetyFromLivenessAndNamesTheSeeds) {
  const Batch batch = RunBatch(Options(100));
  EXPECT_EQ(batch.totals.violations, 1U);
  EXPECT_EQ(batch.totals.liveness_failures, 1U);
  ASSERT_EQ(batch.failures.size(), 2U);
  EXPECT_EQ(batch.failures[0].seed, 17U);
  EXPECT_EQ(batch.failures[0].checker, "INV-2");
  EXPECT_EQ(batch.failures[0].what, "engine 1 serves version 0");
  EXPECT_EQ(batch.failures[1].seed, 23U);
}

TEST(Batch, StopsAfterEnoughFailures) {
  BatchOptions options = Options(1'000'000'000);
  options.stop_after = 1;
  const Batch batch = RunBatch(options);
  EXPECT_GE(batch.failures.size(), 1U);
  EXPECT_LT(batch.totals.runs, 1'000'000U);
}

// G20.
TEST(Batch, FindsTracesThatDifferTheSecondTime) {
  BatchOptions options = Options(100);
  options.repeat_every = 20;
  options.run = [](const Plan& plan, const RunOptions& run_options) {
    static std::uint64_t calls = 0;
    RunResult result = FakeRun(plan, run_options);
    result.violations.clear();
    result.trace_hash += plan.seed == 40 ? ++calls : 0;
    return result;
  };
  const Batch batch = RunBatch(options);
  EXPECT_EQ(batch.totals.repeated, 5U);
  EXPECT_EQ(batch.totals.unequal, 1U);
  ASSERT_EQ(batch.failures.size(), 1U);
  EXPECT_EQ(batch.failures[0].seed, 40U);
  EXPECT_EQ(batch.failures[0].checker, "unequal");
}

TEST(Batch, AWorkerThatDiesCostsItsSeedAlone) {
  BatchOptions options = Options(200);
  options.run = [](const Plan& plan, const RunOptions&) {
    if (plan.seed == 60 || plan.seed == 61) {
      std::abort();
    }
    return RunResult{};
  };
  const Batch batch = RunBatch(options);
  EXPECT_EQ(batch.totals.runs, 200U);
  EXPECT_EQ(batch.totals.died, 2U);
  ASSERT_EQ(batch.failures.size(), 2U);
  EXPECT_EQ(batch.failures[0].seed, 60U);
  EXPECT_EQ(batch.failures[0].checker, "died");
  EXPECT_EQ(batch.failures[1].seed, 61U);
}

TEST(Batch, AWorkerThatHangsCostsItsSeedAlone) {
  BatchOptions options = Options(50);
  options.hung_after_s = 3;  // a worker of a busy machine may be kept waiting
  options.run = [](const Plan& plan, const RunOptions&) {
    volatile bool hangs = plan.seed == 33;
    while (hangs) {
    }
    return RunResult{};
  };
  const Batch batch = RunBatch(options);
  EXPECT_EQ(batch.totals.runs, 50U);
  ASSERT_EQ(batch.failures.size(), 1U);
  EXPECT_EQ(batch.failures[0].seed, 33U);
  EXPECT_EQ(batch.failures[0].checker, "hung");
}

TEST(RunApart, SaysHowItFailed) {
  Plan plan;
  plan.seed = 17;
  EXPECT_EQ(RunApart(plan, FakeRun)->checker, "INV-2");
  EXPECT_EQ(RunApart(plan, [](const Plan&, const RunOptions&) -> RunResult { std::abort(); })->checker, "died");
  plan.seed = 18;
  EXPECT_FALSE(RunApart(plan, FakeRun).has_value());
}

}  // namespace
}  // namespace refit::sim
