// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The public shutdown: links are closed, engines go on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void Ask(FleetRig& rig, const std::string& id) {
  rig.ClearTrace();
  rig.Deliver(control::ShutdownRequested{id});
  rig.RunUntilQuiet();
}

// RC-TERM-05: every side is finalised once; then, and before anything was bound, there is nothing to do.
TEST(Shutdown, ClosesEveryLinkOnceAndTheNextSyncBindsAgain) {
  FleetRig rig({});
  Ask(rig, "early");
  EXPECT_THAT(rig.trace(), ElementsAre("shutdown: OK"));
  ASSERT_TRUE(rig.Sync().status.ok());
  const int closed = rig.closed_links();
  Ask(rig, "a");
  EXPECT_THAT(rig.trace(), ElementsAre("0 bind", "1 bind", "shutdown: OK"));
  EXPECT_EQ(rig.closed_links() - closed, 2);
  EXPECT_EQ(rig.controller().unbound().size(), 2U);
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)) && rig.engine(0).generates());
  Ask(rig, "b");
  EXPECT_THAT(rig.trace(), ElementsAre("shutdown: OK"));
  rig.ClearTrace();
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.traced("0 bind") + rig.traced("1 bind"), 2);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-TERM-05: what a verification keeps of the sources is given back as well.
TEST(Shutdown, GivesTheLeasesBack) {
  FleetRig rig({.keep_lease = true});
  ASSERT_TRUE(rig.Sync().status.ok());
  ASSERT_TRUE(rig.leased(0));
  Ask(rig, "a");
  EXPECT_FALSE(rig.leased(0) || rig.leased(1));
}

// RC-TERM-04: after the latch nobody is called, and nothing counts as ready.
TEST(Shutdown, AfterTheLatchItCallsNobody) {
  FleetRig rig({.profile = sync::kStrict});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.on_load = [&](SlotIndex, std::size_t) { rig.BreakLink(0); };
  ASSERT_FALSE(rig.Sync().status.ok());
  ASSERT_TRUE(rig.controller().latch().has_value());
  Ask(rig, "a");
  EXPECT_THAT(rig.trace(), ElementsAre("shutdown: OK"));
  EXPECT_EQ(rig.controller().unbound().size(), 2U);
}

// RC-SYNC-07: one thing at a time, both ways.
TEST(Shutdown, IsRefusedWhileASyncRunsAndRefusesOne) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.Request("r");
  rig.Deliver(control::ShutdownRequested{"a"});
  rig.Run();
  EXPECT_THAT(rig.trace(), Contains(HasSubstr("shutdown: RESOURCE_EXHAUSTED: busy")));
  EXPECT_TRUE(rig.TakeAnswers()[0].status.ok());
  rig.Deliver(control::ShutdownRequested{"b"});
  rig.Request("s");
  rig.Run();
  EXPECT_THAT(rig.TakeAnswers()[0].status.message(), HasSubstr("busy: a shutdown"));
  EXPECT_EQ(rig.traced("shutdown: OK"), 1);
}

// An agent that dies meanwhile has no links any more.
TEST(Shutdown, DoesNotWaitForTheDead) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.on_agent_command = [](SlotIndex slot, const sync::AgentCommand&) { return slot != SlotIndex(0); };
  Ask(rig, "a");
  EXPECT_EQ(rig.traced("shutdown: OK"), 0);
  rig.LoseAgent(0);
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.traced("shutdown: OK"), 1);
}

}  // namespace
}  // namespace refit::testing
