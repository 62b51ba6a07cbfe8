// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/planted.h"

#include <gtest/gtest.h>

#include <string>

#include "refit/base/mutant.h"

namespace refit::sim {
namespace {

// With both mutants active INV-2 is violated at seed 30, and S4 at seed 31 where "c" is active as well.
RunResult FakeRun(const Plan& plan, const RunOptions& options) {
  RunResult result;
  const auto on = [&](Checker checker) { return options.on.test(static_cast<std::size_t>(checker)); };
  if (mutant::Active("first/a") && mutant::Active("second/b") && plan.seed >= 30 && on(Checker::kInv2)) {
    result.violations.push_back({Checker::kInv2, Duration(1), "seen"});
  } else if (mutant::Active("third/c") && plan.seed >= 31 && on(Checker::kS4)) {
    result.violations.push_back({Checker::kS4, Duration(1), "seen as well"});
  }
  return result;
}

TEST(Planted, RowsAreRead) {
  const auto rows = ParsePlanted("# both\nM1+M6 first/a+second/b INV-1,INV-2 200 link=on tp=2\n\n");
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  ASSERT_EQ(rows->size(), 1U);
  const PlantedRow& row = rows->front();
  EXPECT_EQ(row.name, "M1+M6");
  EXPECT_EQ(row.mutants, (std::vector<std::string>{"first/a", "second/b"}));
  EXPECT_EQ(row.by.count(), 2U);
  EXPECT_EQ(row.budget, 200U);
  EXPECT_EQ(row.settings, "link on\ntp 2\n");
  EXPECT_TRUE(row.also.none());
}

TEST(Planted, BehindABarStandWhoNeedNotReportIt) {
  const PlantedRow row = ParsePlanted("M first/a+second/b+third/c S4|INV-2 200")->front();
  EXPECT_EQ(row.by.count(), 1U);
  EXPECT_EQ(row.also.count(), 1U);
  const PlantedResult result = RunPlanted(row, 2, FakeRun);
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.by.checker, "S4");
}

TEST(Planted, ARowThatCannotBeReadSaysItsLine) {
  EXPECT_NE(ParsePlanted("\nM1 first/a INV-9 20").status().message().find("line 2: there is no checker INV-9"),
            std::string::npos);
  EXPECT_NE(ParsePlanted("M1 first/a INV-1 many").status().message().find("line 1"), std::string::npos);
  EXPECT_NE(ParsePlanted("M1 first/a INV-1").status().message().find("four words"), std::string::npos);
  EXPECT_NE(ParsePlanted("M1 first/a INV-1 20 link=maybe").status().message().find("no value of link"),
            std::string::npos);
}

TEST(Planted, IsFoundByItsCheckersAloneWithinItsBudget) {
  const PlantedRow row = ParsePlanted("M1+M6 first/a+second/b INV-2 200")->front();
  const PlantedResult result = RunPlanted(row, 2, FakeRun);
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.by.checker, "INV-2");
  EXPECT_GE(result.by.seed, 30U);
  EXPECT_FALSE(mutant::Active("first/a")) << "it is active in the workers alone";
}

TEST(Planted, IsNotFoundWithTooSmallABudgetOrOneMutantOfTwo) {
  EXPECT_FALSE(RunPlanted(ParsePlanted("M first/a+second/b INV-2 20")->front(), 1, FakeRun).found);
  EXPECT_FALSE(RunPlanted(ParsePlanted("M first/a INV-2 200")->front(), 1, FakeRun).found);
}

TEST(Planted, ARowThatForgetsACheckerFails) {
  const PlantedRow row = ParsePlanted("M first/a+second/b+third/c INV-2 200")->front();
  const PlantedResult result = RunPlanted(row, 2, FakeRun);
  EXPECT_TRUE(result.found);
  EXPECT_FALSE(result.only_by_those);
  EXPECT_EQ(result.other.checker, "S4");
}

TEST(Planted, SettingsGoBeforeWhatIsDrawn) {
  PlantedRow row;
  row.settings = "link off\nengines 2\nprofile resilient\n";
  PlantedRow strict;
  strict.settings = "profile strict\n";
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Plan plan = DrawPlanOf(seed, row);
    EXPECT_FALSE(plan.link);
    EXPECT_EQ(plan.engines, 2U);
    EXPECT_FALSE(plan.strict);
    EXPECT_TRUE(CheckPlan(plan).ok()) << CheckPlan(plan).ToString();
    EXPECT_TRUE(CheckPlan(DrawPlanOf(seed, strict)).ok()) << CheckPlan(DrawPlanOf(seed, strict)).ToString();
  }
}

TEST(Planted, ARowMayNameAPlanThatIsRunWithEachSeed) {
  const auto rows =
      ParsePlanted("M first/a INV-2 200 plan=here.txt", [](const std::string& file) -> Result<std::string> {
        EXPECT_EQ(file, "here.txt");
        return std::string("# A scenario\nengines 3\nat 1s: kill engine 2\n---\nwhat happened\n");
      });
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  const Plan plan = DrawPlanOf(77, rows->front());
  EXPECT_EQ(plan.seed, 77U);
  EXPECT_EQ(plan.engines, 3U);
  EXPECT_EQ(plan.faults.size(), 1U);
}

TEST(Planted, OnlyFaultsThatTheRowNamesAreDrawn) {
  const PlantedRow row = ParsePlanted("M first/a INV-2 200 link=on faults=late-read,kill-engine")->front();
  std::size_t drawn = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    for (const Fault& fault : DrawPlanOf(seed, row).faults) {
      EXPECT_TRUE(fault.kind == FaultKind::kLateRead || fault.kind == FaultKind::kKillEngine);
      ++drawn;
    }
  }
  EXPECT_GT(drawn, 300U);
  EXPECT_NE(ParsePlanted("M first/a INV-2 200 faults=bad-luck").status().message().find("no fault bad-luck"),
            std::string::npos);
}

}  // namespace
}  // namespace refit::sim
