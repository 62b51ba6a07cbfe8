// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace refit::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Fault Killed(std::uint32_t slot) {
  return {.kind = FaultKind::kKillEngine, .when = {.at = milliseconds(1500)}, .target = slot};
}
bool Has(const Plan& plan, FaultKind kind) {
  return std::any_of(plan.faults.begin(), plan.faults.end(), [&](const Fault& fault) { return fault.kind == kind; });
}

TEST(Shrink, KeepsOnlyTheFaultsThatMatter) {
  Plan plan;
  plan.engines = 3;
  for (std::uint32_t i = 0; i < 3; ++i) {
    plan.faults.push_back(Killed(i));
    plan.faults.push_back({.kind = FaultKind::kLoseRouter, .when = {.at = seconds(i)}});
  }
  plan.faults.push_back({.kind = FaultKind::kKillController});
  const Shrunk shrunk = Shrink(plan, [](const Plan& tried) {
    return Has(tried, FaultKind::kKillController) && Has(tried, FaultKind::kLoseRouter);
  });
  ASSERT_EQ(shrunk.plan.faults.size(), 2U);
  EXPECT_EQ(shrunk.plan.faults[0].kind, FaultKind::kLoseRouter);
  EXPECT_EQ(shrunk.plan.faults[1].kind, FaultKind::kKillController);
}

TEST(Shrink, MakesTheFleetSmallAndTimesRound) {
  Plan plan;
  plan.engines = 9;
  plan.tp_size = 3;
  plan.policies = 3;
  plan.strict = false;
  plan.link = true;
  plan.request_interval = milliseconds(777);
  plan.faults = {Killed(2)};
  plan.faults[0].when = {.at = milliseconds(900), .command = sync::AgentCommandKind::kEnd, .slot = 2, .skip = 3};
  const Shrunk shrunk = Shrink(plan, [](const Plan& tried) {
    return tried.engines >= 4 && !tried.faults.empty() && tried.faults[0].when.at >= milliseconds(100);
  });
  EXPECT_EQ(shrunk.plan.engines, 4U);
  EXPECT_EQ(shrunk.plan.tp_size, 1U);
  EXPECT_EQ(shrunk.plan.policies, 1U);
  EXPECT_EQ(shrunk.plan.requests, 1U);
  EXPECT_FALSE(shrunk.plan.link);
  EXPECT_EQ(shrunk.plan.request_interval, Plan{}.request_interval);
  ASSERT_EQ(shrunk.plan.faults.size(), 1U);
  EXPECT_EQ(shrunk.plan.faults[0].when.skip, 0U);
  EXPECT_LT(shrunk.plan.faults[0].when.at, milliseconds(225));
}

TEST(Shrink, NeverAsksAboutWhatNoConfigurationAccepts) {
  Plan plan;
  plan.strict = true;
  plan.engines = 2;
  plan.policies = 3;
  plan.faults = {Killed(0), Killed(1)};
  Shrink(plan, [](const Plan& tried) {
    EXPECT_TRUE(CheckPlan(tried).ok()) << ToText(tried);
    return tried.strict && tried.faults.size() == 2;
  });
}

TEST(Shrink, EndsWithTheSamePlanWhereNothingCanGo) {
  Plan plan;
  plan.faults = {Killed(0)};
  const Shrunk shrunk = Shrink(plan, [&](const Plan& tried) { return tried == plan; });
  EXPECT_EQ(shrunk.plan, plan);
  EXPECT_GT(shrunk.tried, 0U);
}

TEST(Shrink, GivesUpAfterSoManyTries) {
  Plan plan = DrawPlan(11);
  std::uint32_t asked = 0;
  const Shrunk shrunk = Shrink(
      plan,
      [&](const Plan&) {
        ++asked;
        return false;
      },
      3);
  EXPECT_LE(asked, 3U);
  EXPECT_EQ(shrunk.plan, plan);
}

}  // namespace
}  // namespace refit::sim
