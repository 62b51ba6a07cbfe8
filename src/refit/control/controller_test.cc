// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using sync::Operation;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// RC-SYNC-01.
TEST(Controller, StaleUntilASyncHasSucceededAndFromTheStartOfTheNext) {
  FleetRig rig({});
  EXPECT_TRUE(rig.controller().stale());
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_FALSE(rig.controller().stale());
  rig.Request("next");
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand&) {
    EXPECT_TRUE(rig.controller().stale());
    return true;
  };
  rig.engine(0).SetFault(Operation::kUpdate, {});
  rig.engine(1).SetFault(Operation::kUpdate, {});
  rig.Run();
  EXPECT_TRUE(rig.controller().stale());
}

// RC-SYNC-02, as settled: latch, stale, who is bound, envelope. Each alone stops what comes after it.
TEST(Controller, ASyncChecksTheLatchThenGoesStaleThenLooksWhoIsThereThenTouchesEngines) {
  FleetRig rig({.profile = sync::kStrict});
  EXPECT_TRUE(rig.Sync().status.ok());
  const std::size_t calls = rig.log().size();
  rig.LoseAgent(1);
  EXPECT_EQ(rig.Sync().status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(rig.controller().stale());
  EXPECT_EQ(rig.log().size(), calls);
  rig.Launch(1);
  rig.engine(1).SetFault(Operation::kUpdate, {});
  EXPECT_FALSE(rig.Sync().status.ok());
  rig.LoseAgent(1);
  EXPECT_EQ(rig.Sync().status.code(), StatusCode::kFailedPrecondition);  // the latch, although engine 1 is missing too
}

// RC-RPC-02: over no engines at all, "every engine succeeded" is no success.
TEST(Controller, ARefitOfAnEmptyFleetIsAnError) {
  for (const sync::Profile& profile : {sync::kStrict, sync::kResilient}) {
    FleetRig rig({.profile = profile, .engines = 0, .policies = 1});
    EXPECT_FALSE(rig.Sync().status.ok());
    EXPECT_THAT(rig.commits(), IsEmpty());
    EXPECT_EQ(rig.controller().committed(), WeightVersion(0));
  }
}

// RC-SYNC-07: refused at once, with no side effect.
TEST(Controller, ASecondSyncIsRefusedWhileOneRuns) {
  FleetRig rig({});
  bool asked = false;
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    if (command.kind == sync::AgentCommandKind::kBegin && !std::exchange(asked, true)) {
      rig.Request("other");
    }
    return true;
  };
  rig.Request("first");
  rig.Run();
  const std::vector<control::SyncAnswered> answers = rig.TakeAnswers();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].request_id, "other");
  EXPECT_EQ(answers[0].status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(answers[0].status.message(), HasSubstr("busy: sync first is running"));
  EXPECT_FALSE(answers[0].outcome.has_value());
  EXPECT_TRUE(answers[1].status.ok());
  EXPECT_EQ(rig.engine(0).count("pause"), 1);
}

// RX-ONCE-01.
TEST(Controller, TheSameRequestJoinsWhileItRunsAndGetsItsOutcomeAgainAfterwards) {
  FleetRig rig({});
  rig.Request("r");
  rig.Request("r");
  rig.Run();
  EXPECT_EQ(rig.TakeAnswers().size(), 2U);
  const std::size_t calls = rig.log().size();
  const control::SyncAnswered again = rig.Sync("r");
  EXPECT_TRUE(again.status.ok());
  EXPECT_EQ(again.outcome->version, WeightVersion(1));
  EXPECT_EQ(rig.log().size(), calls);
  EXPECT_EQ(rig.Sync("s").outcome->version, WeightVersion(2));
}

// RC-VER-02, RX-ONCE-02.
TEST(Controller, AFailedSyncLeavesTheCommittedVersionAndBurnsWhatItOpened) {
  FleetRig rig({});
  EXPECT_TRUE(rig.Sync().status.ok());
  rig.engine(0).SetFault(Operation::kFlush, {.times = 1000});
  rig.engine(1).SetFault(Operation::kFlush, {.times = 1000});
  EXPECT_FALSE(rig.Sync().status.ok());
  EXPECT_EQ(rig.controller().committed(), WeightVersion(1));
  rig.engine(0).ClearFaults();
  rig.engine(1).ClearFaults();
  rig.engine(0).SetFault(Operation::kUpdate, {});
  rig.engine(1).SetFault(Operation::kUpdate, {});
  const control::SyncAnswered opened = rig.Sync();
  EXPECT_EQ(opened.outcome->version, WeightVersion(2));  // nothing had been opened under it
  EXPECT_EQ(rig.controller().committed(), WeightVersion(1));
  EXPECT_EQ(rig.Sync().outcome->version, WeightVersion(3));  // 2 is burned
  EXPECT_EQ(rig.controller().committed(), WeightVersion(3));
}

// RC-VER-05: an engine records the number with its first accepted load; that proves no refit.
TEST(Controller, TheLabelThatAnEngineReportsIsNoProofOfItsVersion) {
  FleetRig rig({.profile = sync::kStrict, .engines = 1, .policies = 1});
  rig.engine(0).SetFault(Operation::kUpdate, {.skip = 1});
  EXPECT_FALSE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).label(), WeightVersion(1));
  EXPECT_EQ(rig.controller().committed(), WeightVersion(0));
  EXPECT_EQ(rig.controller().slots()[0].version, WeightVersion(0));
  EXPECT_FALSE(rig.controller().slots()[0].serving);
}

// RC-VER-03.
TEST(Controller, AReplacementGetsTheFleetsVersionNotItsOwnCount) {
  FleetRig rig({});
  EXPECT_TRUE(rig.Sync().status.ok());
  rig.Launch(0);
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.controller().slots()[0].version, WeightVersion(0));  // STALE: its launch weights
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(2)));
}

// RC-TERM-02: first error wins; zero calls, policy workers included.
TEST(Controller, ALatchRefusesEveryLaterSyncAndChainsTheFirstError) {
  FleetRig rig({.profile = sync::kStrict});
  rig.engine(0).SetFault(Operation::kUpdate, {});
  EXPECT_FALSE(rig.Sync("a").status.ok());
  int commands = 0;
  rig.on_policy_command = [&](PolicyRank, const sync::PolicyCommand&) { return ++commands < 0; };
  for (const char* request : {"b", "a", "c"}) {
    const control::SyncAnswered refused = rig.Sync(request);
    EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.status.message(), HasSubstr("terminal"));
    EXPECT_THAT(refused.status.message(), HasSubstr("update refused: fault in update"));
  }
  EXPECT_EQ(commands, 0);
}

TEST(Controller, WhoIsMissingIsNamed) {
  FleetRig rig({.profile = sync::kStrict});
  rig.LoseAgent(1);
  rig.LosePolicy(0);
  const control::SyncAnswered refused = rig.Sync();
  EXPECT_EQ(refused.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.status.message(), HasSubstr("policy rank 0"));
  EXPECT_THAT(refused.status.message(), HasSubstr("engine 1"));
  EXPECT_THAT(rig.log(), IsEmpty());  // RC-SYNC-08: before `pause`
}

TEST(Controller, ResilientNeedsOnlyAsManyEnginesAsMustServe) {
  FleetRig rig({});
  rig.LoseAgent(1);
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  ASSERT_EQ(rig.commits()[0].members.size(), 1U);
  EXPECT_EQ(rig.commits()[0].members[0].slot, SlotIndex(0));
  rig.LoseAgent(0);
  EXPECT_EQ(rig.Sync().status.code(), StatusCode::kUnavailable);
}

// RX-ID-04: the session talks to the incarnation it learned about, never to whoever is in the slot now.
TEST(Controller, ANewIncarnationInMidSyncIsNoMember) {
  FleetRig rig({});
  bool replaced = false;
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    if (command.kind == sync::AgentCommandKind::kEnd && !std::exchange(replaced, true)) {
      rig.Launch(1);
    }
    return true;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok());
  EXPECT_THAT(answer.outcome->engines[1].status.message(), HasSubstr("a new incarnation took its slot"));
  EXPECT_THAT(rig.engine(1).calls(), IsEmpty());
  EXPECT_EQ(rig.controller().slots()[1].version, WeightVersion(0));
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(2)));
}

TEST(Controller, NewsOfAnotherIncarnationChangesNothing) {
  FleetRig rig({});
  rig.Deliver(control::AgentGone{SlotIndex(0), Incarnation{{9, 9}}, Unavailable("late")});
  rig.Deliver(control::PolicyGone{PolicyRank(0), Incarnation{{9, 9}}, Unavailable("late")});
  rig.Deliver(control::AgentRegistered{{SlotIndex(17), Incarnation{{9, 9}}, 1, sync::Residue::Old(WeightVersion(0))}});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.controller().slots().size(), 2U);
}

// RC-RPC-07: strictly increasing per agent, across syncs.
TEST(Controller, SequencesOfCommandsGoOnFromSyncToSync) {
  FleetRig rig({});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.Sync().status.ok());
  CommandSeq last;
  for (const sync::AgentCommand& command : rig.commands(0)) {
    EXPECT_GT(command.stamp.seq, last);
    last = command.stamp.seq;
  }
}

}  // namespace
}  // namespace refit::testing
