// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The monitor and the kill path as the controller uses them (contract §14, §15, §II.8). Their machines alone are tested
// in fleet/.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/fleet_expect.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using fleet::SlotState;
using std::chrono::milliseconds;
using std::chrono::seconds;
using sync::Operation;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RigOptions Tolerant(std::uint32_t engines = 2, const sync::Profile& profile = sync::kResilient) {
  return {.profile = profile, .engines = engines, .policies = engines, .use_fault_tolerance = true, .use_router = true};
}

// RC-MON-01, -03, -11: only what serves, only while it serves, each interval.
TEST(Monitor, ProbesWhatServesAndNothingElse) {
  FleetRig rig(Tolerant());
  rig.RunFor(seconds(10));
  EXPECT_EQ(rig.traced("0 probe"), 0);  // launch weights serve nobody
  Serve(rig);
  rig.RunFor(seconds(10));
  for (const char* probe : {"0 probe", "1 probe"}) {
    EXPECT_GE(rig.traced(probe), 9);
    EXPECT_LE(rig.traced(probe), 11);
  }
  rig.on_launch = [](SlotIndex) { return std::nullopt; };
  rig.LoseAgent(1);
  rig.RunUntilQuiet();
  rig.ClearTrace();
  rig.RunFor(seconds(5));
  EXPECT_EQ(rig.traced("1 probe"), 0);  // RC-MON-01: an empty slot is skipped
  EXPECT_GE(rig.traced("0 probe"), 4);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-MON-03: not for the whole refit, and again once `resume` is answered.
TEST(Monitor, ProbesNobodyDuringARefit) {
  FleetRig rig(Tolerant());
  Serve(rig);
  rig.engine(1).SetFault(Operation::kFlush, {.times = 16});  // 8 s
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok());
  for (const char* probe : {"0 probe", "1 probe"}) {
    EXPECT_GE(rig.traced_at(probe), rig.traced_at("append OUTCOME"));
  }
  rig.RunFor(seconds(3));
  EXPECT_GE(rig.traced("0 probe"), 2);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-MON-11: whoever stays paused is not probed; that would fail through no fault of its own.
TEST(Monitor, DoesNotProbeAnEngineThatStayedPaused) {
  FleetRig rig(Tolerant());
  Serve(rig);
  rig.engine(0).SetFault(Operation::kUpdate, {});
  EXPECT_TRUE(rig.Sync().status.ok());
  rig.RunFor(seconds(10));
  EXPECT_EQ(rig.traced("0 probe"), 0);
  EXPECT_EQ(rig.state(0), SlotState::kBound);
  EXPECT_GE(rig.traced("1 probe"), 9);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-MON-04.
TEST(Monitor, ARefitWaitsForTheProbeInFlight) {
  FleetRig rig(Tolerant(1));
  Serve(rig);
  rig.on_probe = [](SlotIndex) { return std::nullopt; };
  rig.RunFor(milliseconds(1500));
  ASSERT_EQ(rig.traced("0 probe"), 1);
  rig.Request("r");
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.traced("0 attempt"), 0);
  EXPECT_EQ(rig.traced("append INTENT"), 0);
  const control::ProbeEngine probe = rig.last_probe();
  rig.Deliver(control::ProbeEnded{probe.slot, probe.incarnation, probe.probe, OkStatus()});
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.traced("0 attempt"), 1);
}

// RC-MON-02, -04: no longer than twice its timeout, whatever its transport says.
TEST(Monitor, AProbeWithoutAnyAnswerHoldsUpARefitForTwiceItsTimeoutAtMost) {
  FleetRig rig(Tolerant(1));
  Serve(rig);
  rig.on_probe = [](SlotIndex) { return std::nullopt; };
  rig.RunFor(milliseconds(1500));
  const Instant asked = rig.now();
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_LE(rig.now(), asked + seconds(4));
}

// RC-MON-04: nor does a kill that a probe has caused overlap a refit.
TEST(Monitor, ARefitWaitsForTheKillThatAProbeCaused) {
  FleetRig rig(Tolerant(2, sync::kStrict));
  Serve(rig);
  rig.on_probe = [](SlotIndex slot) { return slot == SlotIndex(0) ? Unavailable("no token came") : OkStatus(); };
  rig.on_shut_down = [](SlotIndex) { return false; };
  ASSERT_TRUE(rig.RunUntil([&] { return rig.traced("0 shut down") == 1; }));
  rig.Request("r");
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.traced("1 attempt"), 0);
  rig.Run();
  EXPECT_LT(rig.traced_at("0 hard kill"), rig.traced_at("1 attempt"));
  EXPECT_TRUE(rig.TakeAnswers()[0].status.ok());
}

// RX-QUAR-06: one is reported, three in a row end the life.
TEST(Monitor, SuspicionIsGradedInResilientAndImmediateInStrict) {
  for (const sync::Profile& profile : kProfiles) {
    SCOPED_TRACE(profile.name);
    FleetRig rig(Tolerant(2, profile));
    Serve(rig);
    rig.on_probe = [](SlotIndex slot) { return slot == SlotIndex(0) ? Unavailable("no token came") : OkStatus(); };
    ASSERT_TRUE(rig.RunUntil([&] { return rig.traced("append SLOT") > 0; }));
    EXPECT_EQ(rig.traced("0 probe"), IsStrict(profile) ? 1 : 3);
    std::string reasons;
    for (const control::Record& record : rig.records("SLOT")) {
      reasons += std::get<control::SlotRecord>(record).reason;
    }
    EXPECT_THAT(reasons, HasSubstr("no token came"));
  }
}

// RX-QUAR-06: failures of real requests are a streak of their own, which no probe clears.
TEST(Monitor, RequestsThatFailEndALifeWhoseProbesGoWell) {
  FleetRig rig(Tolerant());
  Serve(rig);
  const Incarnation life = rig.incarnation(0);
  for (int failed = 0; failed < 3; ++failed) {
    EXPECT_EQ(rig.incarnation(0), life);
    rig.Deliver(control::RequestServed{SlotIndex(0), life, false});
    rig.RunFor(seconds(2));
  }
  EXPECT_NE(rig.incarnation(0), life);
  EXPECT_GE(rig.traced("0 probe"), 3);
}

// RX-QUAR-06: only a successful generation clears it.
TEST(Monitor, ARequestThatSucceedsClearsTheStreakOfRequests) {
  FleetRig rig(Tolerant());
  Serve(rig);
  const Incarnation life = rig.incarnation(0);
  for (int request = 0; request < 12; ++request) {
    rig.Deliver(control::RequestServed{SlotIndex(0), life, request % 3 == 2});
  }
  rig.RunFor(seconds(5));
  EXPECT_EQ(rig.incarnation(0), life);
}

// RX-QUAR-01: answering proves nothing about weights.
TEST(Monitor, AProbeThatGoesWellMovesNoSlot) {
  FleetRig rig(Tolerant());
  Serve(rig);
  rig.engine(0).SetFault(Operation::kUpdate, {});
  EXPECT_TRUE(rig.Sync().status.ok());
  const std::size_t arrows = rig.arrows(0).size();
  rig.Deliver(control::ProbeEnded{SlotIndex(0), rig.incarnation(0), 1, OkStatus()});
  rig.Deliver(control::RequestServed{SlotIndex(0), rig.incarnation(0), true});
  rig.RunFor(seconds(20));
  EXPECT_EQ(rig.arrows(0).size(), arrows);
  EXPECT_FALSE(rig.engine(0).generates());
}

// RC-MON-10, RX-QUAR-07, RX-ID-04: evidence is about a life, and late evidence about a dead one is dropped.
TEST(Monitor, NewsOfTheLifeBeforeDoesNotEndTheOneAfter) {
  FleetRig rig(Tolerant(2, sync::kStrict));
  Serve(rig);
  const Incarnation before = rig.incarnation(0);
  rig.on_probe = [](SlotIndex slot) -> std::optional<Status> {
    return slot == SlotIndex(0) ? std::nullopt : std::optional(OkStatus());
  };
  ASSERT_TRUE(rig.RunUntil([&] { return rig.traced("0 probe") == 1; }));
  rig.LoseAgent(0);
  rig.RunUntilQuiet();
  rig.on_probe = nullptr;
  ASSERT_TRUE(rig.Sync().status.ok());
  const Incarnation after = rig.incarnation(0);
  ASSERT_NE(after, before);
  rig.Deliver(control::ProbeEnded{SlotIndex(0), before, rig.last_probe().probe, Unavailable("no token came")});
  rig.Deliver(control::AgentGone{SlotIndex(0), before, Unavailable("late"), true});
  for (int request = 0; request < 5; ++request) {
    rig.Deliver(control::RequestServed{SlotIndex(0), before, false});
  }
  rig.Deliver(control::KillEnded{SlotIndex(0), before, true});
  rig.RunFor(seconds(5));
  EXPECT_EQ(rig.incarnation(0), after);
  EXPECT_EQ(rig.state(0), SlotState::kServing);
}

// RC-ROLE-06: the monitor ends lives and begins none; in strict the next sync does.
TEST(Monitor, InStrictASlotStaysEmptyUntilTheNextSync) {
  FleetRig rig(Tolerant(2, sync::kStrict));
  Serve(rig);
  rig.KillServer(0);
  rig.RunFor(seconds(30));
  EXPECT_EQ(rig.state(0), SlotState::kEmpty);
  EXPECT_EQ(rig.traced("0 launch"), 0);
  EXPECT_FALSE(rig.routed(0));
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.traced("0 launch"), 1);
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-QUAR-03, RC-KILL-01, -02, RX-JRNL-01: written down, out of the router, shut down, killed, launched; no other call.
TEST(Quarantine, EndsALifeInItsOrderAndBeginsTheNext) {
  FleetRig rig(Tolerant());
  Serve(rig);
  const Incarnation life = rig.incarnation(0);
  rig.KillServer(0);
  rig.RunFor(seconds(10));
  const std::vector<const char*> order = {"append SLOT", "router delete 0", "0 shut down", "0 hard kill", "0 launch"};
  for (std::size_t i = 1; i < order.size(); ++i) {
    EXPECT_LT(rig.traced_at(order[i - 1]), rig.traced_at(order[i])) << order[i];
  }
  ASSERT_EQ(rig.traced("0 launch"), 1);
  EXPECT_NE(rig.incarnation(0), life);
  EXPECT_EQ(rig.state(0), SlotState::kStale);
  EXPECT_FALSE(rig.routed(0));  // RX-COMMIT-08
  for (const char* command : {"0 bind", "0 attempt", "0 pause", "0 resume", "0 hold", "0 abort", "0 activate"}) {
    EXPECT_EQ(rig.traced(command), 0) << command;
  }
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-QUAR-03: final for the incarnation, whatever is still heard of it.
TEST(Quarantine, ALifeThatIsOverDoesNotComeBack) {
  FleetRig rig(Tolerant());
  Serve(rig);
  rig.on_launch = [](SlotIndex) { return std::nullopt; };
  rig.Partition(0);
  rig.RunFor(seconds(5));
  const SlotState state = rig.state(0);
  rig.Register(0);
  rig.RunFor(seconds(1));
  EXPECT_EQ(rig.state(0), state);
  EXPECT_FALSE(fleet::IsLive(rig.state(0)));
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.commits().back().members.size(), 1U);
}

// RC-KILL-01: bounded by T, then the hard kill, always.
TEST(Quarantine, AShutdownThatHangsIsFollowedByTheHardKill) {
  FleetRig rig(Tolerant());
  Serve(rig);
  rig.on_shut_down = [](SlotIndex) { return false; };
  rig.Partition(0);
  rig.RunUntilQuiet();
  rig.RunFor(milliseconds(1900));
  EXPECT_EQ(rig.traced("0 hard kill"), 0);
  rig.RunFor(milliseconds(3000));
  EXPECT_EQ(rig.traced("0 hard kill"), 1);
}

// RC-KILL-03.
TEST(Quarantine, ARouterThatFailsOrHangsNeverPreventsTheKill) {
  for (const std::optional<Status>& answer : {std::optional<Status>(), std::optional<Status>(Internal("500"))}) {
    FleetRig rig(Tolerant());
    Serve(rig);
    rig.on_router = [&](const fleet::RouterAction&) { return answer; };
    rig.KillServer(0);
    rig.RunFor(seconds(20));
    EXPECT_EQ(rig.traced("0 hard kill"), 1);
    EXPECT_EQ(rig.traced("0 launch"), 1);
  }
}

// RC-KILL-05: only a confirmed death empties a slot.
TEST(Quarantine, AKillThatIsNotConfirmedLeavesAZombieWhereNothingIsLaunched) {
  for (const std::optional<bool>& answer : {std::optional<bool>(), std::optional<bool>(false)}) {
    FleetRig rig(Tolerant());
    Serve(rig);
    rig.on_kill = [&](SlotIndex) { return answer; };
    rig.Partition(0);
    rig.RunFor(seconds(300));
    EXPECT_EQ(rig.state(0), SlotState::kZombie);
    EXPECT_EQ(rig.traced("0 launch"), 0);
    EXPECT_GE(rig.traced("0 hard kill"), 2);   // tried again
    EXPECT_TRUE(rig.Sync().status.ok());       // the others go on (§II.15)
    EXPECT_THAT(rig.Violations(), IsEmpty());  // the orphan is out of the router
    rig.on_kill = nullptr;
    rig.RunFor(seconds(150));
    EXPECT_GE(rig.traced("0 launch"), 1);
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

// RC-KILL-07, C17: an attached engine is not ours to kill: out of the router, held, and its slot is retired.
TEST(Quarantine, AnAttachedEngineIsHeldAndNotKilled) {
  FleetRig rig({.attached = true, .use_router = true});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.RunFor(seconds(5));
  ASSERT_TRUE(rig.routed(0));
  rig.Deliver(control::SlotRequested{"", control::SlotAction::kRemove, SlotIndex(0), seconds(5)});
  rig.RunFor(seconds(5));
  EXPECT_EQ(rig.state(0), SlotState::kRetired);
  EXPECT_FALSE(rig.routed(0));
  EXPECT_FALSE(rig.engine(0).dead());
  EXPECT_FALSE(rig.engine(0).generates());
  EXPECT_EQ(rig.agent(0).phase(), peer::AgentPhase::kHeld);
  EXPECT_EQ(rig.traced("0 kill") + rig.traced("0 hard kill"), 0);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-QUAR-04: a slot that flaps uses up its restarts, and is retired.
TEST(Quarantine, AFlappingSlotIsRetiredAndTheOthersGoOn) {
  FleetRig rig(Tolerant());
  Serve(rig);
  for (int death = 0; death < 4; ++death) {
    rig.LoseAgent(0);
    rig.RunFor(seconds(20));
  }
  EXPECT_EQ(rig.traced("0 launch"), 3);
  EXPECT_EQ(rig.state(0), SlotState::kRetired);
  EXPECT_EQ(rig.records("RETIRE").size(), 1U);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.commits().back().members.size(), 1U);
}

// RX-QUAR-04: a recovery that was rolled back consumes the budget like any other.
TEST(Quarantine, LaunchesThatFailUseUpTheRestartsToo) {
  FleetRig rig(Tolerant());
  Serve(rig);
  rig.on_launch = [](SlotIndex) { return Internal("out of memory"); };
  rig.LoseAgent(0);
  rig.RunFor(seconds(120));
  EXPECT_EQ(rig.traced("0 launch"), 3);
  EXPECT_EQ(rig.state(0), SlotState::kRetired);
}

// RX-QUAR-05, -08: no budget is charged for what is not the engines' fault.
TEST(Quarantine, ASystemicFailureChargesNobody) {
  FleetRig rig(Tolerant(2));
  Serve(rig);
  for (int round = 0; round < 5; ++round) {
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      rig.engine(slot).SetFault(Operation::kUpdate, {.kind = sync::AnswerKind::kNone});
    }
    const control::SyncAnswered answer = rig.Sync();
    EXPECT_THAT(answer.status.message(), HasSubstr("SYSTEMIC")) << round;
    rig.RunFor(seconds(120));
    EXPECT_EQ(rig.state(0), SlotState::kStale) << round;
    EXPECT_EQ(rig.state(1), SlotState::kStale) << round;
  }
  EXPECT_TRUE(rig.Sync().status.ok());
}

// RX-QUAR-05: nor is a charge forgiven that an engine deserved.
TEST(Quarantine, ASystemicFailureForgivesNoEarlierCharge) {
  FleetRig rig(Tolerant(3));
  Serve(rig);
  for (int death = 0; death < 3; ++death) {
    rig.LoseAgent(0);
    rig.RunFor(seconds(20));
  }
  for (std::uint32_t slot = 1; slot < 3; ++slot) {
    rig.engine(slot).SetFault(Operation::kUpdate, {.kind = sync::AnswerKind::kNone});
  }
  EXPECT_FALSE(rig.Sync().status.ok());
  rig.RunFor(seconds(60));
  rig.ClearTrace();
  rig.LoseAgent(0);
  rig.RunFor(seconds(60));
  EXPECT_EQ(rig.state(0), SlotState::kRetired);
}

// RX-QUAR-08: slots are launched again, but not updated until the next request.
TEST(Quarantine, PoisonousWeightsAreNotGivenToAReplacementByItself) {
  RigOptions options = Tolerant(3);
  options.retains = true;
  options.catch_up_budget = seconds(30);
  FleetRig rig(options);
  Serve(rig);
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    rig.engine(slot).SetFault(Operation::kUpdate, {.kind = sync::AnswerKind::kNone});
  }
  EXPECT_FALSE(rig.Sync().status.ok());
  rig.ClearTrace();
  rig.RunFor(seconds(60));
  EXPECT_EQ(rig.traced("0 launch"), 1);
  EXPECT_EQ(rig.traced("0 attempt") + rig.traced("1 attempt"), 0);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(0).serves(rig.controller().committed()));
}

}  // namespace
}  // namespace refit::testing
