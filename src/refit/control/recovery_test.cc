// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Recovery as the controller uses it (contract §16): one attempt for all empty slots within a sync in strict, one per
// slot at any time in resilient.

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
using Kind = sync::AgentCommandKind;
using Slots = std::set<SlotIndex>;

RigOptions Strict(std::uint32_t engines) {
  return {.profile = sync::kStrict,
          .engines = engines,
          .policies = engines,
          .use_fault_tolerance = true,
          .use_router = true};
}

RigOptions Resilient(std::uint32_t engines) {
  RigOptions options = Strict(engines);
  options.profile = sync::kResilient;
  return options;
}

// RC-SYNC-02, RC-REC-08, RC-BIND-01: a sync recovers, then binds, then touches engines; exactly the filled slots are
// unbound in between.
TEST(Recovery, ASyncLaunchesWhatIsEmptyThenBindsThenRefits) {
  FleetRig rig(Strict(2));
  EXPECT_EQ(rig.traced("0 launch"), 0);
  Slots unbound;
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    if (command.kind == Kind::kBind && unbound.empty()) {
      unbound = rig.controller().unbound();
    }
    return true;
  };
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(unbound, (Slots{SlotIndex(0), SlotIndex(1)}));
  EXPECT_THAT(rig.controller().unbound(), IsEmpty());
  EXPECT_LT(rig.traced_at("1 launch"), rig.traced_at("0 bind"));
  EXPECT_LT(rig.traced_at("1 bind"), rig.traced_at("0 attempt"));
  EXPECT_LT(rig.traced_at("1 attempt"), rig.traced_at("0 pause"));
}

// RC-REC-01, RC-MON-04: the monitor is quiet before anything is launched.
TEST(Recovery, WaitsForTheProbeInFlight) {
  FleetRig rig(Strict(2));
  Serve(rig);
  rig.on_launch = [](SlotIndex) { return std::nullopt; };
  rig.LoseAgent(1);
  rig.on_probe = [](SlotIndex) { return std::nullopt; };
  rig.RunFor(milliseconds(1500));
  ASSERT_EQ(rig.traced("0 probe"), 1);
  rig.Request("r");
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.traced("1 launch"), 0);
  const control::ProbeEngine probe = rig.last_probe();
  rig.Deliver(control::ProbeEnded{probe.slot, probe.incarnation, probe.probe, OkStatus()});
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.traced("1 launch"), 1);
  rig.RunFor(seconds(10));
  EXPECT_EQ(rig.traced("0 probe"), 1);  // nor while it recovers
}

// RC-REC-02, RC-SYNC-03: without an empty slot a recovery touches nothing, the unbound set least of all.
TEST(Recovery, OfNothingLeavesTheUnboundSetAlone) {
  FleetRig rig(Strict(2));
  rig.LosePolicy(0);
  EXPECT_EQ(rig.Sync().status.code(), StatusCode::kUnavailable);  // recovered, and then a policy rank is missing
  EXPECT_EQ(rig.controller().unbound(), (Slots{SlotIndex(0), SlotIndex(1)}));
  rig.ClearTrace();
  EXPECT_EQ(rig.Sync().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(rig.traced("0 launch") + rig.traced("1 launch"), 0);
  EXPECT_EQ(rig.controller().unbound(), (Slots{SlotIndex(0), SlotIndex(1)}));
  rig.JoinPolicy(0);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_THAT(rig.controller().unbound(), IsEmpty());
}

// RC-SYNC-03: with fault tolerance off nobody is launched, whatever is empty.
TEST(Recovery, IsNotTriedWithoutFaultTolerance) {
  FleetRig rig({.profile = sync::kStrict});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.LoseAgent(0);
  EXPECT_EQ(rig.Sync().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(rig.traced("0 launch"), 0);
}

// RC-REC-03, -04, -06, -07: all or none. What was filled is killed again, the unbound set is what it was, survivors see
// nothing, the original error is raised, nothing latches, and the next sync recovers and binds.
TEST(Recovery, ALaunchThatFailsRollsTheWholeCohortBack) {
  FleetRig rig(Strict(3));
  rig.LosePolicy(0);
  EXPECT_FALSE(rig.Sync().status.ok());
  rig.LoseAgent(0);
  rig.LoseAgent(1);
  rig.RunUntilQuiet();
  ASSERT_EQ(rig.controller().unbound(), (Slots{SlotIndex(2)}));  // off the degenerate point
  const Incarnation survivor = rig.incarnation(2);
  rig.ClearTrace();
  rig.on_launch = [](SlotIndex slot) { return slot == SlotIndex(1) ? Internal("port in use") : OkStatus(); };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("launch of slot 1: port in use"));
  EXPECT_FALSE(answer.outcome.has_value());
  EXPECT_EQ(rig.controller().unbound(), (Slots{SlotIndex(2)}));
  EXPECT_EQ(rig.state(0), SlotState::kEmpty);
  EXPECT_EQ(rig.state(1), SlotState::kEmpty);
  EXPECT_TRUE(rig.engine(0).dead());
  EXPECT_LT(rig.traced_at("0 shut down"), rig.traced_at("0 hard kill"));
  EXPECT_EQ(rig.traced("1 hard kill"), 1);  // who knows how far it got
  EXPECT_EQ(rig.traced("2 shut down") + rig.traced("2 hard kill") + rig.traced("2 launch"), 0);
  EXPECT_EQ(rig.incarnation(2), survivor);
  EXPECT_FALSE(rig.controller().latch().has_value());
  rig.on_launch = nullptr;
  rig.JoinPolicy(0);
  rig.ClearTrace();
  const control::SyncAnswered next = rig.Sync();
  EXPECT_TRUE(next.status.ok()) << next.status.ToString();
  EXPECT_EQ(rig.traced("0 launch"), 1);
  EXPECT_EQ(rig.traced("0 bind"), 1);
  EXPECT_EQ(rig.incarnation(2), survivor);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-REC-06: two failing syncs recover twice.
TEST(Recovery, IsTriedAgainByTheNextSync) {
  FleetRig rig(Strict(2));
  rig.on_launch = [](SlotIndex slot) { return slot == SlotIndex(1) ? Internal("port in use") : OkStatus(); };
  EXPECT_FALSE(rig.Sync().status.ok());
  EXPECT_FALSE(rig.Sync().status.ok());
  EXPECT_EQ(rig.traced("0 launch"), 2);
  EXPECT_EQ(rig.traced("0 bind") + rig.traced("0 pause"), 0);
}

// RC-REC-03: the offload transition is part of the attempt; so is a launch that never answers.
TEST(Recovery, EveryStepIsWithinTheGuard) {
  for (const Operation step : {Operation::kRelease, Operation::kOnloadWeights}) {
    SCOPED_TRACE(ToString(step));
    RigOptions options = Strict(2);
    options.needs_offload = true;
    FleetRig rig(options);
    rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
      if (slot == SlotIndex(1) && command.kind == Kind::kRelease) {
        rig.engine(1).SetFault(step, {});
      }
      return true;
    };
    const control::SyncAnswered answer = rig.Sync();
    EXPECT_THAT(answer.status.message(), HasSubstr("offload of slot 1"));
    EXPECT_EQ(rig.state(0), SlotState::kEmpty);
    EXPECT_TRUE(rig.engine(0).dead() && rig.engine(1).dead());
    rig.on_agent_command = nullptr;
    EXPECT_TRUE(rig.Sync().status.ok());
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
  FleetRig rig(Strict(2));
  rig.on_launch = [](SlotIndex slot) { return slot == SlotIndex(1) ? std::nullopt : std::optional(OkStatus()); };
  EXPECT_EQ(rig.Sync().status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(rig.state(0), SlotState::kEmpty);
  EXPECT_EQ(rig.state(1), SlotState::kEmpty);
}

// RC-REC-03: an offloading fleet gives its memory up, takes the weights' back, and its KV pool before it resumes.
TEST(Recovery, AnOffloadingFleetReleasesBothTagsAndOnloadsTheWeights) {
  RigOptions options = Strict(1);
  options.needs_offload = true;
  FleetRig rig(options);
  EXPECT_TRUE(rig.Sync().status.ok());
  const std::vector<std::string>& calls = rig.engine(0).calls();
  ASSERT_GE(calls.size(), 3U);
  EXPECT_EQ(calls[0], "release");
  EXPECT_EQ(calls[1], "onload(weights)");
  EXPECT_EQ(calls[2], "pause");
  EXPECT_EQ(rig.engine(0).count("onload(kv_cache)"), 1);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-REC-05, RC-TERM-01, -02: both errors, and terminal.
TEST(Recovery, ARollbackThatFailsLatchesStrict) {
  FleetRig rig(Strict(2));
  rig.on_launch = [](SlotIndex slot) { return slot == SlotIndex(1) ? Internal("port in use") : OkStatus(); };
  rig.on_kill = [](SlotIndex slot) { return slot != SlotIndex(0); };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("RecoveryRollbackError"));
  EXPECT_THAT(answer.status.message(), HasSubstr("port in use"));
  EXPECT_EQ(rig.state(0), SlotState::kZombie);
  rig.RunFor(seconds(1));
  rig.ClearTrace();
  const control::SyncAnswered refused = rig.Sync();
  EXPECT_THAT(refused.status.message(), HasSubstr("terminal"));
  EXPECT_THAT(refused.status.message(), HasSubstr("RecoveryRollbackError"));
  EXPECT_EQ(rig.traced("0 launch") + rig.traced("1 launch") + rig.traced("0 hard kill"), 0);
  EXPECT_EQ(rig.records("LATCH").size(), 1U);
}

// RC-REC-05, §II.15: in resilient the slot is a zombie, excluded, and the others go on.
TEST(Recovery, ARollbackThatFailsIsOneZombieInResilient) {
  FleetRig rig(Resilient(2));
  Serve(rig);
  rig.on_launch = [](SlotIndex) { return Internal("port in use"); };
  rig.LoseAgent(0);
  rig.RunUntilQuiet();
  rig.on_kill = [](SlotIndex slot) { return slot != SlotIndex(0); };
  rig.RunFor(seconds(10));
  EXPECT_EQ(rig.state(0), SlotState::kZombie);
  EXPECT_FALSE(rig.controller().latch().has_value());
  EXPECT_TRUE(rig.Sync().status.ok());
}

// RC-REC-10: what died while nobody probed is replaced before anybody is paused, and no probe asks for it; healthy
// engines see nothing of it.
TEST(Recovery, FindsWhatDiedBeforeItCountsEmptySlots) {
  RigOptions options = Strict(2);
  options.needs_offload = true;
  FleetRig rig(options);
  Serve(rig);
  const Incarnation life = rig.incarnation(0);
  const Incarnation survivor = rig.incarnation(1);
  const std::size_t calls = rig.engine(1).calls().size();
  rig.KillServer(0);
  rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
    if (slot == SlotIndex(1) && command.kind == Kind::kBind) {
      ADD_FAILURE() << "a survivor is bound again";
    }
    if (slot == SlotIndex(1) && command.kind == Kind::kAttempt) {
      EXPECT_EQ(rig.engine(1).calls().size(), calls);
      EXPECT_NE(rig.incarnation(0), life);
    }
    return true;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_EQ(rig.traced("0 probe") + rig.traced("1 probe"), 0);
  EXPECT_LT(rig.traced_at("0 hard kill"), rig.traced_at("0 launch"));
  EXPECT_LT(rig.traced_at("0 launch"), rig.traced_at("1 pause"));
  EXPECT_EQ(rig.incarnation(1), survivor);
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-TERM-06: cancelled like any failure, rolled back all the same.
TEST(Recovery, CancellationRollsBack) {
  FleetRig rig(Strict(2));
  rig.on_launch = [](SlotIndex slot) { return slot == SlotIndex(1) ? std::nullopt : std::optional(OkStatus()); };
  rig.Request("r");
  rig.RunUntilQuiet();
  rig.Deliver(control::SyncCancelled{"r"});
  rig.RunFor(seconds(10));
  const std::vector<control::SyncAnswered> answers = rig.TakeAnswers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(rig.engine(0).dead());
  EXPECT_EQ(rig.state(0), SlotState::kEmpty);
  EXPECT_EQ(rig.state(1), SlotState::kEmpty);
  EXPECT_FALSE(rig.controller().latch().has_value());
  rig.on_launch = nullptr;
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-REC-03, -04 of §II.15: one recovery per slot, at any time; one that hangs holds up no other.
TEST(Recovery, ResilientRecoversEachSlotByItselfAndAtOnce) {
  FleetRig rig(Resilient(3));
  Serve(rig);
  rig.on_launch = [](SlotIndex slot) { return slot == SlotIndex(0) ? std::nullopt : std::optional(OkStatus()); };
  rig.LoseAgent(0);
  rig.LoseAgent(1);
  rig.RunFor(seconds(3));
  EXPECT_EQ(rig.state(0), SlotState::kLaunching);
  EXPECT_EQ(rig.state(1), SlotState::kStale);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.commits().back().members.size(), 2U);
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(2)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-COMMIT-05: too few engines, through no fault of the request: the fleet recovers meanwhile, and it goes on.
TEST(Recovery, ARefitThatLostItsEnginesGoesOnWhenTheyAreBack) {
  FleetRig rig(Resilient(1));
  Serve(rig);
  bool lost = false;
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    if (command.kind == Kind::kEnd && !std::exchange(lost, true)) {
      rig.LoseAgent(0);
    }
    return true;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_TRUE(rig.engine(0).serves(rig.controller().committed()));
  EXPECT_EQ(rig.traced("0 launch"), 1);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-COMMIT-05, INV-8: and where they do not come back, it says so at its deadline. §II.16: nothing latches.
TEST(Recovery, ARefitThatLostItsEnginesForGoodIsInsufficientAtItsDeadline) {
  FleetRig rig(Resilient(1));
  Serve(rig);
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    if (command.kind == Kind::kEnd) {
      rig.LoseAgent(0);
    }
    return true;
  };
  rig.on_launch = [](SlotIndex) { return std::nullopt; };
  const Instant start = rig.now();
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("INSUFFICIENT"));
  EXPECT_EQ(rig.now(), start + seconds(60));
  EXPECT_FALSE(rig.controller().latch().has_value());
  EXPECT_EQ(rig.controller().committed(), WeightVersion(1));
}

// RC-TERM-03: after the latch nobody is launched, probed, resumed or finalised.
TEST(Recovery, AfterALatchNothingIsLaunchedAndNobodyIsProbed) {
  FleetRig rig(Strict(2));
  Serve(rig);
  rig.engine(0).SetFault(Operation::kUpdate, {});
  EXPECT_TRUE(rig.Sync().outcome->latch);
  rig.LoseAgent(0);
  rig.RunUntilQuiet();
  rig.ClearTrace();
  rig.RunFor(seconds(60));
  for (const char* line : {"0 launch", "1 launch", "0 probe", "1 probe", "1 resume", "1 abort", "1 activate"}) {
    EXPECT_EQ(rig.traced(line), 0) << line;
  }
  EXPECT_FALSE(rig.engine(1).generates());
}

}  // namespace
}  // namespace refit::testing
