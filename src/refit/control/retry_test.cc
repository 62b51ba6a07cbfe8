// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Attempts after the first one (contract §II.4), and who is to blame for those that fail (§II.8).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "refit/base/str.h"
#include "tests/support/fleet_expect.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using sync::AnswerKind;
using sync::Operation;
using sync::ResidueKind;
using sync::SessionFamily;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = sync::AgentCommandKind;

// Breaks the link of a slot at that load of its attempt, in the first `times` attempts.
std::function<void(SlotIndex, std::size_t)> Breaks(FleetRig& rig, std::uint32_t of, std::size_t at, int times) {
  return [&rig, of, at, left = times](SlotIndex slot, std::size_t load) mutable {
    if (slot == SlotIndex(of) && load == at && left > 0) {
      --left;
      rig.BreakLink(of);
    }
  };
}

std::size_t CountAfterLast(const std::vector<std::string>& calls, std::string_view last, std::string_view call) {
  const auto from = std::find(calls.rbegin(), calls.rend(), last).base();
  return static_cast<std::size_t>(std::count(from, calls.end(), call));
}

// RX-XFER-10: a retry sends the complete set. RX-XFER-09: before it, by family. §II.4 step 4, 5.
TEST(Retry, ALinkThatBreaksCostsAnAttemptAndNotTheRefit) {  // S21
  for (const SessionFamily family : {SessionFamily::kA, SessionFamily::kC}) {
    for (const std::size_t load : {0U, 1U, 2U}) {
      SCOPED_TRACE(StrCat("family ", ToString(family), ", load ", load));
      FleetRig rig({.family = family});
      rig.on_load = Breaks(rig, 0, load, 1);
      const control::SyncAnswered answer = rig.Sync();
      ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
      EXPECT_EQ(answer.outcome->attempt, (AttemptId{Term(4), 2}));
      EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)) && rig.engine(1).serves(WeightVersion(1)));
      if (family == SessionFamily::kC) {
        EXPECT_EQ(CountAfterLast(rig.engine(0).calls(), "begin", "update"), 3U);
        EXPECT_EQ(rig.engine(0).count("begin"), 2);
      }
      EXPECT_GE(rig.engine(0).count("update"), static_cast<int>(load) + 4);
      EXPECT_EQ(rig.records("INTENT").size(), 2U);
      EXPECT_EQ(rig.records("ABORTED").size(), 1U);
      EXPECT_THAT(rig.Violations(), IsEmpty());
    }
  }
}

// RX-XFER-09, table 11.2: nothing is retried in place on family B once its session is half full.
TEST(Retry, FamilyBIsKilledInsteadAndTheOthersGoOn) {
  FleetRig rig({.family = SessionFamily::kB});
  rig.on_load = Breaks(rig, 0, 1, 1);
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_TRUE(rig.engine(0).dead());
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(1)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-XFER-05, -12: nobody sends again before everybody has said FENCED.
TEST(Retry, TheNextAttemptBeginsWhenEverybodyIsFenced) {
  FleetRig rig({});
  rig.on_load = Breaks(rig, 0, 1, 1);
  std::optional<sync::AgentReply> held;
  rig.on_agent_reply = [&](SlotIndex slot, const sync::AgentReply& reply) {
    if (slot == SlotIndex(1) && reply.status.code() == StatusCode::kAborted && !held.has_value()) {
      held = reply;
      return false;
    }
    return true;
  };
  rig.Request("r");
  rig.RunUntilQuiet();
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(rig.controller().phase(), sync::SessionPhase::kFencing);
  EXPECT_EQ(rig.traced("policy 0 send"), 1);
  EXPECT_EQ(rig.traced("0 attempt"), 1);
  rig.Deliver(sync::SessionEvent{sync::AgentReplied{SlotIndex(1), *held}});
  rig.Run();
  EXPECT_EQ(rig.traced("policy 0 send"), 2);
  EXPECT_TRUE(rig.TakeAnswers()[0].status.ok());
}

// Makes engine 1 complete attempt 1 before the controller hears that engine 0 failed it.
void LetEngine1CompleteTheFirstAttempt(FleetRig& rig) {
  rig.on_load = Breaks(rig, 0, 2, 1);
  rig.on_agent_reply = [&rig, held = std::optional<sync::AgentReply>(), told = false](
                           SlotIndex slot, const sync::AgentReply& reply) mutable {
    if (slot == SlotIndex(0) && reply.kind == sync::ReplyKind::kFailed && !held.has_value()) {
      held = reply;
      return false;
    }
    if (slot == SlotIndex(1) && reply.residue.kind == ResidueKind::kComplete && !std::exchange(told, true)) {
      rig.Deliver(sync::SessionEvent{sync::AgentReplied{slot, reply}});
      rig.Deliver(sync::SessionEvent{sync::AgentReplied{SlotIndex(0), *held}});
      return false;
    }
    return true;
  };
}

// RX-XFER-06, RX-ID-05: senders start again together; whose engine is complete iterates and sends nothing. Members are
// named with the attempt that each of them completed.
TEST(Retry, SendersStartAgainTogetherAndDrainWhereTheEngineIsComplete) {  // S29
  FleetRig rig({});
  LetEngine1CompleteTheFirstAttempt(rig);
  std::map<PolicyRank, int> sends;
  rig.on_policy_command = [&](PolicyRank rank, const sync::PolicyCommand& command) {
    sends[rank] += command.kind == sync::PolicyCommandKind::kSend ? 1 : 0;
    return true;
  };
  const control::SyncAnswered answer = rig.Sync();
  ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_EQ(sends[PolicyRank(0)], 2);
  EXPECT_EQ(sends[PolicyRank(1)], 2);
  EXPECT_TRUE(rig.sent_to_nobody(1));
  EXPECT_EQ(rig.engine(1).count("update"), 3);
  ASSERT_EQ(rig.commits()[0].members.size(), 2U);
  EXPECT_EQ(rig.commits()[0].members[0].attempt, (AttemptId{Term(4), 2}));
  EXPECT_EQ(rig.commits()[0].members[1].attempt, (AttemptId{Term(4), 1}));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-XFER-06: its iterator may wait in a collective for the one that drains.
TEST(Retry, TheDecisionWaitsForTheSenderThatOnlyDrains) {
  FleetRig rig({});
  LetEngine1CompleteTheFirstAttempt(rig);
  int sends = 0;
  rig.on_policy_command = [&](PolicyRank rank, const sync::PolicyCommand& command) {
    return rank != PolicyRank(1) || command.kind != sync::PolicyCommandKind::kSend || ++sends < 2;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_EQ(sends, 2);
  EXPECT_THAT(answer.status.message(), HasSubstr("policy rank 1 (send)"));
  EXPECT_THAT(rig.commits(), IsEmpty());
}

// RX-XFER-11: repeating what an engine rejects wastes the deadline and hides a bug.
TEST(Retry, WhatIsDeterministicIsNotTriedAgain) {
  FleetRig rig({.engines = 3, .policies = 3});
  rig.engine(0).SetFault(Operation::kUpdate, {});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.outcome->attempt, (AttemptId{Term(4), 1}));
  EXPECT_FALSE(answer.outcome->engines[0].status.ok());
  EXPECT_EQ(rig.engine(0).count("update"), 1);
  EXPECT_EQ(rig.traced("1 attempt"), 1);
}

// RX-XFER-11, §II.15: strict has one attempt.
TEST(Retry, StrictLatchesWhatResilientWouldTryAgain) {
  FleetRig rig({.profile = sync::kStrict});
  rig.on_load = Breaks(rig, 0, 1, 1);
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.outcome->latch);
  EXPECT_EQ(rig.traced("0 attempt"), 1);
}

// RX-SUM-02, RX-QUAR-02: two attempts on the same pair, and it is that engine's; the third goes without it.
TEST(Retry, AnEngineWhoseLinkFailsTwiceIsQuarantinedAndTheOthersCommit) {
  FleetRig rig({.engines = 3, .policies = 3});
  rig.on_load = Breaks(rig, 0, 1, 100);
  const control::SyncAnswered answer = rig.Sync();
  ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_EQ(answer.outcome->attempt.n, 3U);
  EXPECT_TRUE(answer.outcome->engines[0].killed);
  EXPECT_THAT(answer.outcome->engines[0].status.message(), HasSubstr("its link failed twice: "));
  EXPECT_TRUE(rig.engine(0).dead());
  ASSERT_EQ(rig.commits()[0].excluded.size(), 1U);
  EXPECT_THAT(rig.commits()[0].excluded[0].second, HasSubstr("link down"));
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(1)) && rig.engine(2).serves(WeightVersion(1)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-SUM-02: the same sender with different receivers is the sender's; nobody is quarantined.
TEST(Retry, ASenderThatFailsSeveralEnginesIsNotTheirFault) {
  FleetRig rig({.engines = 4, .policies = 1});
  rig.on_load = [&rig, broke0 = 0, broke1 = 0](SlotIndex slot, std::size_t load) mutable {
    if (slot == SlotIndex(0) && load == 1 && broke0 < 2) {
      ++broke0;
      rig.BreakLink(0);
    } else if (slot == SlotIndex(1) && load == 0 && broke1 < 1) {
      ++broke1;
      rig.BreakLink(1);
    }
  };
  const control::SyncAnswered answer = rig.Sync();
  ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_EQ(answer.outcome->attempt.n, 3U);
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    EXPECT_TRUE(rig.engine(slot).serves(WeightVersion(1)));
  }
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-QUAR-05: a dead switch must not empty the fleet.
TEST(Retry, WhenMostLinksFailInEveryAttemptTheRefitIsSystemicAndNobodyIsKilled) {
  FleetRig rig({.engines = 3, .policies = 3});
  rig.on_load = [&rig](SlotIndex slot, std::size_t load) {
    if (slot != SlotIndex(2) && load == 1) {
      rig.BreakLink(slot.value());
    }
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("SYSTEMIC"));
  EXPECT_EQ(answer.outcome->attempt.n, 3U);
  EXPECT_TRUE(answer.outcome->systemic);
  EXPECT_FALSE(answer.outcome->latch);
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    EXPECT_FALSE(rig.engine(slot).dead()) << slot;
    EXPECT_FALSE(rig.engine(slot).generates()) << slot;
  }
  rig.on_load = nullptr;
  ExpectNextSyncWorks(rig, 3);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-QUAR-05: more than half, and at least two, at the same step in the same way: bad weights, not bad engines. The
// attempt fails even where enough others would do.
TEST(Retry, WhenMostEnginesRefuseTheSameStepTheRefitIsSystemic) {
  for (const Operation operation : {Operation::kFlush, Operation::kUpdate}) {
    SCOPED_TRACE(ToString(operation));
    FleetRig rig({.engines = 3, .policies = 3});
    rig.engine(0).SetFault(operation, {.times = 1000});
    rig.engine(2).SetFault(operation, {.times = 1000});
    const control::SyncAnswered answer = rig.Sync();
    EXPECT_FALSE(answer.status.ok());
    EXPECT_THAT(rig.commits(), IsEmpty());
    ASSERT_TRUE(answer.outcome.has_value());
    EXPECT_TRUE(answer.outcome->systemic);
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      EXPECT_FALSE(rig.engine(slot).dead()) << slot;
      EXPECT_EQ(rig.engine(slot).generates(), operation == Operation::kFlush) << slot;
    }
    ExpectNextSyncWorks(rig, 3);
  }
}

// RX-QUAR-02: engine k fails at each step; the others commit. One of three is no majority.
TEST(Retry, AFailureOfOneEngineIsItsOwnAtEveryStep) {
  for (const Operation operation : {Operation::kOnloadWeights, Operation::kPause, Operation::kFlush, Operation::kBegin,
                                    Operation::kUpdate, Operation::kEnd}) {
    for (std::uint32_t k = 0; k < 3; ++k) {
      SCOPED_TRACE(StrCat(ToString(operation), " of engine ", k));
      FleetRig rig({.engines = 3, .policies = 3});
      rig.Release(k);
      rig.engine(k).SetFault(operation, {.times = 1000});
      EXPECT_TRUE(rig.Sync().status.ok());
      ASSERT_EQ(rig.commits().size(), 1U);
      EXPECT_EQ(rig.commits()[0].members.size(), 2U);
      EXPECT_EQ(rig.commits()[0].excluded[0].first, SlotIndex(k));
      EXPECT_THAT(rig.Violations(), IsEmpty());
    }
  }
}

// RX-COMMIT-05: fewer than must serve: no record, and it is said to be too few.
TEST(Retry, FewerThanMustServeAreNotPublished) {
  sync::Profile two = sync::kResilient;
  two.min_serving = 2;
  FleetRig rig({.profile = two, .engines = 3, .policies = 3});
  rig.engine(0).SetFault(Operation::kFlush, {.kind = AnswerKind::kNone});
  rig.engine(1).SetFault(Operation::kEnd, {.kind = AnswerKind::kNone});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_FALSE(answer.status.ok());
  EXPECT_TRUE(answer.outcome->insufficient);
  EXPECT_FALSE(answer.outcome->latch);
  EXPECT_THAT(rig.commits(), IsEmpty());
  EXPECT_FALSE(rig.engine(2).generates());
  ExpectNextSyncWorks(rig, 3);
}

// RX-QUAR-08: once two engines have died of an update no further engine is given it; the next request may try again.
TEST(Retry, AnUpdateThatKillsTwoEnginesIsNotGivenToAThird) {
  FleetRig rig({.engines = 5, .policies = 5});
  rig.engine(0).SetFault(Operation::kUpdate, {.kind = AnswerKind::kNone});
  rig.engine(1).SetFault(Operation::kUpdate, {.kind = AnswerKind::kNone, .skip = 2});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("SYSTEMIC: 2 engines died of this update"));
  EXPECT_TRUE(answer.outcome->deaths_in_update);
  EXPECT_TRUE(answer.outcome->systemic);
  EXPECT_FALSE(answer.outcome->latch);
  EXPECT_THAT(rig.commits(), IsEmpty());
  for (std::uint32_t slot = 2; slot < 5; ++slot) {
    EXPECT_FALSE(rig.engine(slot).dead());
    EXPECT_FALSE(rig.engine(slot).generates());
  }
  ExpectNextSyncWorks(rig, 5);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-QUAR-08: that an engine is gone may be heard before its last reply.
TEST(Retry, ADeathInAnUpdateCountsWhicheverWayItIsHeard) {
  FleetRig rig({.engines = 5, .policies = 5});
  for (const std::uint32_t slot : {0U, 1U}) {
    rig.engine(slot).SetFault(Operation::kUpdate, {.kind = AnswerKind::kNone});
  }
  rig.on_agent_reply = [&rig](SlotIndex slot, const sync::AgentReply& reply) {
    if (reply.died_in_update) {
      rig.Deliver(control::AgentGone{slot, reply.stamp.incarnation, Unavailable("exit 137"), true, true});
    }
    return true;
  };
  EXPECT_TRUE(rig.Sync().outcome->deaths_in_update);
  EXPECT_THAT(rig.commits(), IsEmpty());
}

// RX-QUAR-08: other deaths never count for it.
TEST(Retry, DeathsOutsideUpdatesAreNotThoseOfTheWeights) {
  FleetRig rig({.engines = 5, .policies = 5});
  rig.engine(0).SetFault(Operation::kFlush, {.kind = AnswerKind::kNone});
  rig.engine(1).SetFault(Operation::kFlush, {.kind = AnswerKind::kNone});
  rig.engine(2).SetFault(Operation::kUpdate, {.kind = AnswerKind::kNone});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_FALSE(answer.outcome->deaths_in_update);
  EXPECT_EQ(rig.commits()[0].members.size(), 2U);
}

// RC-RPC-07: whoever only was out of reach remembers what it accepted, and so does its controller.
TEST(Retry, AWorkerWhoseConnectionBrokeIsAskedWhereItWasLeft) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.BreakConnection(0);
  rig.RegisterPolicy(0);
  rig.RunUntilQuiet();
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
}

// RX-ONCE-03: the first attempt that every sender completed says what the version means.
TEST(Retry, ASourceThatGivesOtherWeightsThanBeforeIsAnEquivocationThatLatches) {  // S76
  FleetRig rig({.engines = 1, .policies = 1});
  rig.on_load = Breaks(rig, 0, 2, 1);
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    if (command.kind == Kind::kAttempt && command.stamp.attempt.n == 2) {
      rig.SetDigest(0, Digest{{6, 6}});
    }
    return true;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("EQUIVOCATION"));
  EXPECT_THAT(rig.commits(), IsEmpty());
  EXPECT_TRUE(answer.outcome->latch);
  EXPECT_FALSE(rig.engine(0).generates());
  EXPECT_EQ(rig.Sync().status.code(), StatusCode::kFailedPrecondition);
}

// RX-XFER-07, -13: a sender that cannot be fenced ends the attempts; the sync returns in time.
TEST(Retry, ASenderThatCannotBeFencedEndsTheAttempts) {
  FleetRig rig({});
  rig.on_load = Breaks(rig, 0, 1, 1);
  rig.block_send = true;
  const Instant start = rig.now();
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message() + ::testing::PrintToString(answer.outcome->notes), HasSubstr("source blocked"));
  EXPECT_EQ(rig.traced("0 attempt"), 1);
  EXPECT_LE(rig.now(), start + std::chrono::seconds(60));
  EXPECT_FALSE(rig.engine(0).generates() || rig.engine(1).generates());
}

// C6, RX-XFER-06: losing an engine detaches its pairs, and the attempt goes on.
TEST(Retry, ALostEngineCostsNoAttempt) {
  FleetRig rig({.engines = 3, .policies = 3});
  rig.on_load = [&](SlotIndex slot, std::size_t load) {
    if (slot == SlotIndex(1) && load == 1) {
      rig.LoseAgent(1);
    }
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.outcome->attempt.n, 1U);
  EXPECT_EQ(rig.traced("0 abort"), 0);
}

// RX-XFER-08: one lease for all attempts.
TEST(Retry, TheLeaseIsHeldFromTheFirstAttemptToTheLast) {
  FleetRig rig({});
  rig.on_load = Breaks(rig, 0, 1, 1);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.traced("policy 0 lease"), 1);
  EXPECT_EQ(rig.traced("policy 0 release"), 1);
  EXPECT_FALSE(rig.leased(0));
}

// RX-TIME-01: a retry takes what is left of the one budget.
TEST(Retry, ARetryTakesWhatIsLeftOfTheBudget) {
  FleetRig rig({});
  std::map<std::uint32_t, Duration> budgets;  // of `pause`, by attempt
  rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
    if (slot == SlotIndex(0) && command.kind == Kind::kPause) {
      budgets[command.stamp.attempt.n] = command.budget;
    }
    return true;
  };
  rig.engine(1).SetFault(Operation::kFlush, {.times = 10});  // 5 s
  rig.on_load = Breaks(rig, 0, 1, 1);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(budgets[1], std::chrono::seconds(30));
  EXPECT_LT(budgets[2], std::chrono::seconds(28));
}

}  // namespace
}  // namespace refit::testing
