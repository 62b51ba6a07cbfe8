// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Who is bound, who takes part, who is routed (contract §17, §19, §II.5, §II.13).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "refit/base/str.h"
#include "tests/support/fleet_expect.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using control::SlotAction;
using fleet::SlotState;
using std::chrono::seconds;
using sync::Operation;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = sync::AgentCommandKind;
using Slots = std::set<SlotIndex>;

// ---- bind

// RC-BIND-01, RC-SYNC-04, -05: the first sync binds the whole fleet before it touches an engine, and consumes; the next
// one has nothing to bind.
TEST(Bind, TheFirstSyncBindsTheFleetAndTheNextOneNobody) {
  for (const sync::Profile& profile : kProfiles) {
    FleetRig rig({.profile = profile});
    EXPECT_EQ(rig.controller().unbound(), (Slots{SlotIndex(0), SlotIndex(1)}));
    ASSERT_TRUE(rig.Sync().status.ok());
    EXPECT_LT(rig.traced_at("1 bind"), rig.traced_at("1 attempt"));
    EXPECT_THAT(rig.controller().unbound(), IsEmpty());
    EXPECT_EQ(rig.records("BIND").size(), 2U);
    rig.ClearTrace();
    ASSERT_TRUE(rig.Sync().status.ok());
    EXPECT_EQ(rig.traced("0 bind") + rig.traced("1 bind"), 0);
    EXPECT_EQ(rig.opened_links().size(), 2U);
  }
}

// RC-BIND-01, -02, -04, -06, RC-LIFE-04: a replacement is bound; the survivor keeps its link, and nothing goes over its
// wire.
TEST(Bind, ARebindTouchesOnlyThePairThatChanged) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  const std::vector<sync::StreamSource> survivor = rig.agent(1).links();
  rig.Launch(0);
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.controller().unbound(), (Slots{SlotIndex(0)}));
  rig.ClearTrace();
  ASSERT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.traced("0 bind"), 1);
  EXPECT_EQ(rig.traced("1 bind"), 0);
  EXPECT_EQ(rig.agent(1).links(), survivor);
  EXPECT_EQ(rig.opened_links().size(), 3U);
  EXPECT_EQ(rig.closed_links(), 0);
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)) && rig.engine(1).serves(WeightVersion(2)));
}

// RC-BIND-03: a policy worker that came back is a new peer: the old link goes, then the new one comes.
TEST(Bind, ANewPolicyWorkerIsBoundAndItsOldLinkClosed) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  const std::vector<sync::StreamSource> before = rig.agent(0).links();
  rig.LosePolicy(0);
  rig.JoinPolicy(0);
  EXPECT_EQ(rig.controller().unbound(), (Slots{SlotIndex(0)}));
  ASSERT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.closed_links(), 1);
  ASSERT_EQ(rig.agent(0).links().size(), 1U);
  EXPECT_GT(rig.agent(0).links()[0].link, before[0].link);  // RC-BIND-06: no number twice
  EXPECT_NE(rig.agent(0).links()[0].incarnation, before[0].incarnation);
}

// RC-BIND-05, RC-SYNC-04, RC-TERM-01: terminal in strict, with no engine called and nothing consumed.
TEST(Bind, AFailureLatchesStrictBeforeAnyEngineIsTouched) {
  FleetRig rig({.profile = sync::kStrict});
  rig.on_link = [](SlotIndex slot, const sync::StreamSource&) {
    return slot == SlotIndex(1) ? DataLoss("the block came back altered") : OkStatus();
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("the block came back altered"));
  EXPECT_TRUE(answer.outcome->latch);
  EXPECT_TRUE(rig.controller().unbound().contains(SlotIndex(1)));
  EXPECT_THAT(rig.log(), IsEmpty());
  rig.on_link = nullptr;
  rig.RunUntilQuiet();
  rig.ClearTrace();
  EXPECT_THAT(rig.Sync().status.message(), HasSubstr("terminal"));
  EXPECT_EQ(rig.trace(), (std::vector<std::string>{"answer"}));
}

// RX-BIND-02, -04, RC-BIND-05 of §II.15: retryable. The failed link is closed, links in use stay, and the sync works.
TEST(Bind, AFailureIsTriedOnceMoreInResilient) {
  FleetRig rig({});
  rig.on_link = [failed = false](SlotIndex slot, const sync::StreamSource&) mutable {
    return slot == SlotIndex(1) && !std::exchange(failed, true) ? DataLoss("the block came back altered") : OkStatus();
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.outcome->engines[1].status.ok());
  EXPECT_EQ(rig.closed_links(), 1);
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(1)));
}

// RX-BIND-04: after two tries that slot is quarantined and the others go on.
TEST(Bind, ASlotThatFailsTwiceIsQuarantinedAndTheOthersGoOn) {
  FleetRig rig({});
  rig.on_link = [](SlotIndex slot, const sync::StreamSource&) {
    return slot == SlotIndex(1) ? DataLoss("the block came back altered") : OkStatus();
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)));
  EXPECT_TRUE(rig.engine(1).dead());
  EXPECT_EQ(rig.traced("1 bind"), 2);
  EXPECT_EQ(rig.closed_links(), 2);
  EXPECT_THAT(rig.engine(1).calls(), ::testing::Not(::testing::Contains("begin")));
  rig.on_link = nullptr;
  ExpectNextSyncWorks(rig, 2);
}

// RX-BIND-06: whoever has another link than the attempt names says so, is bound again, and the same attempt goes on.
TEST(Bind, AnAgentThatIsUnboundIsBoundAgain) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.on_agent_command = [&rig, told = false](SlotIndex slot, const sync::AgentCommand& command) mutable {
    if (slot != SlotIndex(0) || command.kind != Kind::kAttempt || std::exchange(told, true)) {
      return true;
    }
    sync::AgentReply unbound;
    unbound.stamp = command.stamp;
    unbound.kind = sync::ReplyKind::kUnbound;
    unbound.status = FailedPrecondition("a link of the attempt is not the one that is bound");
    unbound.residue = rig.agent(0).residue();
    rig.Deliver(sync::SessionEvent{sync::AgentReplied{slot, unbound}});
    return false;
  };
  rig.ClearTrace();
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.outcome->engines[0].status.ok()) << answer.status.ToString();
  EXPECT_EQ(rig.traced("0 bind"), 1);
  EXPECT_EQ(answer.outcome->attempt.n, 2U);  // of this term: the first was the sync before
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
}

// ---- joining and leaving

// RX-MEM-01, -05: 1 -> 3 -> 2 -> 4 -> 1 over one set of senders; pairs that did not change are not connected again.
TEST(Membership, GrowsAndShrinksBetweenRefits) {
  FleetRig rig({.engines = 1, .policies = 4});
  std::size_t links = 0;
  std::uint64_t version = 0;
  const auto refit = [&](std::initializer_list<std::uint32_t> slots, std::size_t new_links) {
    const control::SyncAnswered answer = rig.Sync();
    ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
    ++version;
    links += new_links;
    EXPECT_EQ(rig.opened_links().size(), links);
    EXPECT_EQ(rig.commits().back().members.size(), slots.size());
    for (const std::uint32_t slot : slots) {
      EXPECT_TRUE(rig.engine(slot).serves(WeightVersion(version))) << slot;
    }
  };
  const auto add = [&](std::uint32_t slot) {
    rig.Deliver(control::SlotRequested{"", SlotAction::kAdd, SlotIndex(slot)});
    rig.Launch(slot);
  };
  const auto remove = [&](std::uint32_t slot) {
    rig.Deliver(control::SlotRequested{"", SlotAction::kRemove, SlotIndex(slot), seconds(5)});
    rig.RunUntilQuiet();
    EXPECT_EQ(rig.state(slot), SlotState::kRetired);
  };
  refit({0}, 1);
  add(1);
  add(2);
  refit({0, 1, 2}, 2);
  remove(1);
  refit({0, 2}, 0);
  add(3);
  add(4);
  rig.RunUntilQuiet();
  rig.Deliver(control::SlotRequested{"again", SlotAction::kAdd, SlotIndex(1)});
  rig.Launch(1);
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.traced("again: FAILED_PRECONDITION: engine slot 1 is retired, and its number is never used again in a "
                       "run (add another number)"),
            1);
  EXPECT_EQ(rig.state(1), SlotState::kRetired);
  remove(4);
  refit({0, 2, 3}, 1);
  remove(2);
  remove(3);
  refit({0}, 0);
  EXPECT_THAT(rig.engine(1).calls(), IsEmpty());
}

// RX-MEM-02: who joins during a refit waits for the next one.
TEST(Membership, AJoinerInMidRefitWaits) {
  FleetRig rig({.engines = 1, .policies = 2});
  bool joined = false;
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    if (command.kind == Kind::kPause && !std::exchange(joined, true)) {
      rig.Deliver(control::SlotRequested{"", SlotAction::kAdd, SlotIndex(1)});
      rig.Launch(1);
    }
    return true;
  };
  ASSERT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.commits()[0].members.size(), 1U);
  EXPECT_THAT(rig.engine(1).calls(), IsEmpty());
  ASSERT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(2)));
}

// RX-MEM-03, RX-COMMIT-08: a replacement is brought to what is committed while the others go on serving, and is routed
// only then. RX-JRNL-01: its activation stands behind a record.
TEST(Membership, AReplacementCatchesUpWhileTheOthersServe) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  rig.LoseAgent(0);
  rig.RunFor(seconds(20));
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)));
  EXPECT_EQ(rig.state(0), SlotState::kServing);
  EXPECT_TRUE(rig.routed(0));
  EXPECT_EQ(rig.engine(1).count("pause"), 1);  // of the refit
  EXPECT_EQ(rig.commits().size(), 1U);
  const auto slots = rig.records("SLOT");
  EXPECT_EQ(std::get<control::SlotRecord>(slots.back()).state, SlotState::kServing);
  EXPECT_LT(rig.traced_at("0 activate"), rig.traced_at("router add 0"));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-MEM-03: without a source that still has the version it waits, STALE, and status says so.
TEST(Membership, WithoutARetainedSourceAReplacementWaitsForTheNextRefit) {
  RigOptions options = CatchingUp();
  options.retains = false;
  FleetRig rig(options);
  Serve(rig);
  rig.LoseAgent(0);
  rig.RunFor(seconds(60));
  EXPECT_EQ(rig.state(0), SlotState::kStale);
  EXPECT_EQ(rig.traced("0 attempt"), 0);
  EXPECT_FALSE(rig.routed(0));
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
}

// RX-MEM-03: at most twice; then it joins the next refit. The source must still mean the same bytes (RX-ONCE-03).
TEST(Membership, ACatchUpIsTriedTwiceAndTakesNoOtherBytes) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  rig.SetDigest(0, Digest{{6, 6}});
  rig.SetDigest(1, Digest{{6, 6}});
  rig.LoseAgent(0);
  rig.RunFor(seconds(200));
  EXPECT_EQ(rig.traced("policy 0 lease"), 2);
  EXPECT_EQ(rig.traced("0 activate"), 0);
  EXPECT_FALSE(rig.engine(0).generates());
  EXPECT_FALSE(rig.controller().latch().has_value());
  EXPECT_EQ(rig.engine(1).count("pause"), 1);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-MEM-03: what failed for want of a policy worker is tried again when he is back, without a refit.
TEST(Membership, ACatchUpIsTriedAgainWithAPolicyWorkerThatIsBack) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  rig.SetDigest(0, Digest{{6, 6}});  // both tries come to nothing
  rig.LoseAgent(0);
  rig.RunFor(seconds(200));
  ASSERT_FALSE(rig.engine(0).generates());
  rig.LosePolicy(0);
  rig.JoinPolicy(0);
  rig.RunFor(seconds(20));
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)));
  EXPECT_EQ(rig.commits().size(), 1U);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-MEM-02, C13: a sync that begins during a catch-up cancels it and takes the joiner in.
TEST(Membership, ASyncCancelsACatchUpAndTakesTheJoinerIn) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  bool asked = false;
  rig.on_load = [&](SlotIndex slot, std::size_t load) {
    if (slot == SlotIndex(0) && load == 1 && !std::exchange(asked, true)) {
      rig.Request("r");
    }
  };
  rig.LoseAgent(0);
  ASSERT_TRUE(rig.RunUntil([&] { return rig.commits().size() == 2; }));
  rig.Run();
  const std::vector<control::SyncAnswered> answers = rig.TakeAnswers();
  ASSERT_FALSE(answers.empty());
  EXPECT_TRUE(answers.back().status.ok()) << answers.back().status.ToString();
  EXPECT_EQ(rig.commits()[1].members.size(), 2U);
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-MEM-04: out of the router, then a graceful shutdown, whose time is for requests in flight; the kill comes last.
TEST(Membership, ASlotThatIsRemovedIsDrained) {
  FleetRig rig(Routed());
  Serve(rig);
  rig.Deliver(control::SlotRequested{"", SlotAction::kRemove, SlotIndex(0), seconds(5)});
  rig.RunFor(seconds(10));
  EXPECT_LT(rig.traced_at("router delete 0"), rig.traced_at("0 drain"));
  EXPECT_LT(rig.traced_at("0 drain"), rig.traced_at("0 hold"));
  EXPECT_LT(rig.traced_at("0 hold"), rig.traced_at("0 shut down"));
  EXPECT_LT(rig.traced_at("0 shut down"), rig.traced_at("0 hard kill"));
  EXPECT_EQ(rig.state(0), SlotState::kRetired);
  EXPECT_EQ(rig.traced("0 launch"), 0);
  EXPECT_EQ(rig.records("RETIRE").size(), 1U);
  EXPECT_TRUE(rig.Sync().status.ok());
}

// ---- the router

// RC-RTR-01, -03, RC-ROLE-07, RX-COMMIT-08, M3: in the router through ACTIVATE and in no other way.
TEST(Router, KnowsAnEngineOnlyOnceItWasActivated) {
  FleetRig rig(Routed());
  rig.RunFor(seconds(10));
  EXPECT_THAT(rig.router(), IsEmpty());
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.RunFor(seconds(2));
  EXPECT_TRUE(rig.routed(0) && rig.routed(1));
  EXPECT_LT(rig.traced_at("0 activate"), rig.traced_at("router add 0"));
  rig.KillServer(0);
  rig.RunFor(seconds(30));
  EXPECT_EQ(rig.state(0), SlotState::kStale);
  EXPECT_EQ(rig.router().size(), 1U);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-RTR-04: whatever is not a serving member goes within a second, paused survivors stay, and a router that restarts
// empty is filled again.
TEST(Router, IsReconciledEverySecond) {
  FleetRig rig(Routed());
  Serve(rig);
  rig.router()["by-hand"] = {"by-hand", SlotIndex(7), Incarnation{{9, 9}}};
  rig.router()["foreign"] = {"foreign", SlotIndex(0), Incarnation{}};
  rig.RunFor(seconds(1));
  EXPECT_EQ(rig.router().size(), 2U);
  rig.router().clear();
  rig.RunFor(seconds(2));
  EXPECT_TRUE(rig.routed(0) && rig.routed(1));
  std::size_t routed = 0;
  rig.on_load = [&](SlotIndex, std::size_t) { routed = rig.router().size(); };
  rig.engine(0).SetFault(Operation::kFlush, {.times = 6});  // 3 s
  ASSERT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(routed, 2U);  // paused survivors stay
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-COMMIT-03, RX-LEAD-03, RC-RTR-04: whoever can neither be held nor be confirmed dead must be gone from the router
// before the decision; where that cannot be had, nothing is decided.
TEST(Router, TheDecisionWaitsUntilWhoIsLostIsOutOfTraffic) {
  for (const bool router_answers : {true, false}) {
    FleetRig rig(Routed());
    Serve(rig);
    rig.on_kill = [](SlotIndex) { return false; };
    bool lost = false;
    rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
      if (slot == SlotIndex(0) && command.kind == Kind::kAttempt && !std::exchange(lost, true)) {
        rig.Partition(0);
        if (!router_answers) {
          rig.on_router = [](const fleet::RouterAction&) { return std::nullopt; };
        }
      }
      return slot != SlotIndex(0) || !lost;
    };
    const control::SyncAnswered answer = rig.Sync();
    EXPECT_EQ(answer.status.ok(), router_answers) << answer.status.ToString();
    EXPECT_EQ(rig.commits().size(), router_answers ? 2U : 1U);
    if (!router_answers) {
      EXPECT_THAT(answer.status.message(), HasSubstr("out of traffic"));
    }
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

}  // namespace
}  // namespace refit::testing
