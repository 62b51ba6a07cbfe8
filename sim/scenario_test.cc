// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/scenario.h"

#include <gtest/gtest.h>

#include <string>

namespace refit::sim {
namespace {

constexpr std::string_view kText =
    "# An engine dies while it serves.\n"
    "# RC-KILL-05\n"
    "seed 3\n"
    "at 1s: kill engine 0\n"
    "---\n"
    "1.000  fault 0: kill-engine 0\n"
    "1.000  slot 0 life 3: serving -> quarantined\n"
    "1.000  controller 0 -> agent 1: hold\n"
    "5 requests, 4 commits, no violation\n";

RunResult FakeRun(const Plan& plan, const RunOptions& options) {
  *options.trace = {"1000500 us  fault 0: kill-engine 0", "1000600 us  lost: 1 0 -> 0 0",
                    "1000700 us  slot 0 life 3: serving -> quarantined",
                    "1000700 us  controller 0 -> agent 1: hold seq 4 attempt 1:1"};
  RunResult result;
  result.requests = 5;
  result.commits = 4;
  result.faults_happened.assign(plan.faults.size(), plan.seed != 4);
  if (plan.seed == 5) {
    result.violations.push_back({Checker::kInv2, Duration(1), "engine 0 serves version 0"});
  }
  return result;
}

TEST(Scenario, IsReadAsCommentsPlanAndExpectation) {
  const auto scenario = ParseScenario(kText);
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  EXPECT_EQ(scenario->plan.seed, 3U);
  EXPECT_EQ(scenario->plan.faults.size(), 1U);
  EXPECT_EQ(scenario->above + scenario->expected, kText);
}

TEST(Scenario, PassesWhereWhatPeopleFollowIsAsExpected) {
  const ScenarioRun run = RunScenario(*ParseScenario(kText), FakeRun);
  EXPECT_TRUE(run.status.ok()) << run.status.ToString() << "\n" << run.diff;
  EXPECT_EQ(run.diff, "");
}

TEST(Scenario, ShowsADiffWhereSomethingElseHappened) {
  Scenario scenario = *ParseScenario(kText);
  scenario.expected =
      "1.000  fault 0: kill-engine 0\n2.000  slot 0 life 3: empty -> launching\n"
      "5 requests, 4 commits, no violation\n";
  const ScenarioRun run = RunScenario(scenario, FakeRun);
  EXPECT_FALSE(run.status.ok());
  EXPECT_EQ(run.diff,
            "  1.000  fault 0: kill-engine 0\n"
            "- 2.000  slot 0 life 3: empty -> launching\n"
            "+ 1.000  slot 0 life 3: serving -> quarantined\n"
            "+ 1.000  controller 0 -> agent 1: hold\n"
            "  5 requests, 4 commits, no violation\n");
}

TEST(Scenario, FailsWhereItsFaultDidNotHappen) {
  Scenario scenario = *ParseScenario(kText);
  scenario.plan.seed = 4;
  const ScenarioRun run = RunScenario(scenario, FakeRun);
  EXPECT_NE(run.status.message().find("fault 1 of the plan did not happen"), std::string::npos);
}

TEST(Scenario, FailsOnAViolationEvenAnExpectedOne) {
  Scenario scenario = *ParseScenario(kText);
  scenario.plan.seed = 5;
  scenario.expected = RunScenario(scenario, FakeRun).summary;
  const ScenarioRun run = RunScenario(scenario, FakeRun);
  EXPECT_EQ(run.diff, "");
  EXPECT_NE(run.status.message().find("violation of INV-2"), std::string::npos);
}

TEST(Scenario, RefusesFilesThatSayNothingOrEndTooEarly) {
  EXPECT_NE(ParseScenario("seed 3\n---\n").status().message().find("first line"), std::string::npos);
  EXPECT_NE(ParseScenario("# What it shows\nseed 3\n").status().message().find("'---' is missing"), std::string::npos);
  EXPECT_NE(ParseScenario("# What it shows\nsed 3\n---\n").status().message().find("line 2"), std::string::npos);
}

}  // namespace
}  // namespace refit::sim
