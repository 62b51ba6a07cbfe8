// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Slots that people add, drain, remove and restart (contract II.13).

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
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = sync::AgentCommandKind;

constexpr Duration kGrace = seconds(20);

// The request is named like what it is: "drain 0".
void Ask(FleetRig& rig, const std::string& name, SlotAction action, std::uint32_t slot) {
  rig.Deliver(control::SlotRequested{name, action, SlotIndex(slot), kGrace});
}

std::string AnswerTo(const FleetRig& rig, const std::string& name) {
  std::string answer;
  for (const std::string& line : rig.trace()) {
    if (line.starts_with(name + ": ")) {
      answer = line.substr(name.size() + 2);
    }
  }
  return answer;
}

std::string ServiceOf(FleetRig& rig, std::uint32_t slot) {
  for (const control::SlotView& view : rig.controller().slots()) {
    if (view.slot == SlotIndex(slot)) {
      return view.service;
    }
  }
  return "";
}

// RX-MEM-04: out of the router first, then its requests end by themselves; only then it is paused. Its process lives,
// and no refit takes it in.
TEST(Drain, TakesAnEngineOutOfTrafficAndRefitsAndLeavesItsProcessAlone) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  const Incarnation life = rig.incarnation(0);
  Ask(rig, "drain", SlotAction::kDrain, 0);
  rig.RunFor(seconds(2));
  EXPECT_EQ(AnswerTo(rig, "drain"), "OK");
  EXPECT_LT(rig.traced_at("router delete 0"), rig.traced_at("0 drain"));
  EXPECT_LT(rig.traced_at("0 drain"), rig.traced_at("0 hold"));
  EXPECT_EQ(ServiceOf(rig, 0), "drained");
  EXPECT_TRUE(rig.engine(0).paused());
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.RunFor(seconds(30));
  EXPECT_EQ(rig.commits().back().members.size(), 1U);
  EXPECT_EQ(rig.incarnation(0), life);
  EXPECT_FALSE(rig.engine(0).dead());
  EXPECT_EQ(rig.state(0), SlotState::kPaused);
  EXPECT_FALSE(rig.routed(0));
  EXPECT_EQ(rig.traced("0 probe") + rig.traced("0 bind") + rig.traced("0 attempt"), 0);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-MEM-04: what does not end is aborted when its grace has ended, and not before.
TEST(Drain, WaitsForRequestsInFlightAsLongAsTheirGrace) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  rig.on_drain = [](SlotIndex) { return std::nullopt; };
  Ask(rig, "drain", SlotAction::kDrain, 0);
  rig.RunFor(kGrace - seconds(1));
  EXPECT_EQ(rig.traced("0 hold"), 0);
  EXPECT_EQ(ServiceOf(rig, 0), "draining");
  rig.RunFor(seconds(2));
  EXPECT_EQ(rig.traced("0 hold"), 1);
  EXPECT_EQ(AnswerTo(rig, "drain"), "OK");
}

// A refit aborts everybody's requests in flight, those of whoever leaves included: it waits for none of them.
TEST(Drain, IsCutShortByASyncThatGoesOnWithoutTheEngine) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  rig.on_drain = [](SlotIndex) { return std::nullopt; };
  Ask(rig, "drain", SlotAction::kDrain, 0);
  rig.RunFor(seconds(1));
  const Instant asked = rig.now();
  ASSERT_TRUE(rig.Sync().status.ok());
  EXPECT_LT(rig.now() - asked, seconds(5));
  EXPECT_EQ(rig.commits().back().members.size(), 1U);
  EXPECT_EQ(AnswerTo(rig, "drain"), "OK");
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-MEM-02: whoever is asked for in the middle of a refit is a member of it, and leaves afterwards.
TEST(Drain, OfAMemberWaitsForTheRefit) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  bool asked = false;
  rig.on_load = [&](SlotIndex, std::size_t) {
    if (!std::exchange(asked, true)) {
      Ask(rig, "drain", SlotAction::kDrain, 0);
    }
  };
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.RunFor(seconds(2));
  EXPECT_EQ(rig.commits().back().members.size(), 2U);
  EXPECT_LT(rig.traced_at("0 activate"), rig.traced_at("0 hold"));
  EXPECT_EQ(ServiceOf(rig, 0), "drained");
}

// RX-MEM-03: it has missed a version meanwhile.
TEST(Add, OfADrainedSlotCatchesUpTheEngineThatIsThere) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  const Incarnation life = rig.incarnation(0);
  Ask(rig, "drain", SlotAction::kDrain, 0);
  rig.RunFor(seconds(2));
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.RunFor(seconds(5));
  EXPECT_EQ(rig.state(0), SlotState::kPaused);
  Ask(rig, "add", SlotAction::kAdd, 0);
  rig.RunFor(seconds(5));
  EXPECT_EQ(AnswerTo(rig, "add"), "OK");
  EXPECT_EQ(rig.incarnation(0), life);
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(2)));
  EXPECT_TRUE(rig.routed(0));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-MEM-03, C13: nobody asked for a sync.
TEST(Add, OfANewSlotLaunchesItAndCatchesItUp) {
  FleetRig rig(CatchingUp(1));
  Serve(rig);
  Ask(rig, "add", SlotAction::kAdd, 5);
  rig.RunFor(seconds(5));
  EXPECT_EQ(rig.traced("5 launch"), 1);
  EXPECT_TRUE(rig.engine(5).serves(WeightVersion(1)));
  EXPECT_TRUE(rig.routed(5));
  EXPECT_EQ(rig.engine(0).count("pause"), 1);  // of the refit
  EXPECT_EQ(rig.commits().size(), 1U);
}

// RX-QUAR-04: a restart on request is nobody's failure, however often.
TEST(Restart, LaunchesAnewAndChargesNothing) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  for (int n = 0; n < 5; ++n) {
    const Incarnation before = rig.incarnation(0);
    rig.ClearTrace();
    Ask(rig, "restart", SlotAction::kRestart, 0);
    rig.RunFor(seconds(10));
    EXPECT_EQ(AnswerTo(rig, "restart"), "OK");
    EXPECT_LT(rig.traced_at("router delete 0"), rig.traced_at("0 hold"));
    EXPECT_LT(rig.traced_at("0 hold"), rig.traced_at("0 shut down"));
    EXPECT_NE(rig.incarnation(0), before);
    EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1))) << n;
  }
  EXPECT_EQ(rig.engine(1).count("pause"), 1);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// In profile strict, too, although nothing else launches between syncs there (RC-ROLE-06).
TEST(Restart, LaunchesInProfileStrict) {
  RigOptions options = CatchingUp();
  options.profile = sync::kStrict;
  FleetRig rig(options);
  Serve(rig);
  Ask(rig, "restart", SlotAction::kRestart, 0);
  rig.RunFor(seconds(10));
  EXPECT_EQ(AnswerTo(rig, "restart"), "OK");
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)));
}

TEST(Remove, EndsALaunchAndGoesBeforeADrain) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  rig.on_launch = [](SlotIndex) { return std::nullopt; };
  Ask(rig, "add", SlotAction::kAdd, 4);
  rig.RunFor(seconds(1));
  Ask(rig, "remove 4", SlotAction::kRemove, 4);
  rig.on_drain = [](SlotIndex) { return std::nullopt; };
  Ask(rig, "drain", SlotAction::kDrain, 0);
  Ask(rig, "restart", SlotAction::kRestart, 0);
  Ask(rig, "remove 0", SlotAction::kRemove, 0);
  rig.RunFor(kGrace + seconds(10));
  EXPECT_EQ(AnswerTo(rig, "remove 4"), "OK");
  EXPECT_THAT(AnswerTo(rig, "drain"), HasSubstr("ABORTED"));
  EXPECT_THAT(AnswerTo(rig, "restart"), HasSubstr("busy: engine slot 0 is being drained"));
  EXPECT_EQ(AnswerTo(rig, "remove 0"), "OK");
  EXPECT_EQ(rig.state(0), SlotState::kRetired);
  EXPECT_EQ(rig.state(4), SlotState::kRetired);
  Ask(rig, "remove again", SlotAction::kRemove, 0);
  Ask(rig, "drain again", SlotAction::kDrain, 0);
  rig.RunUntilQuiet();
  EXPECT_EQ(AnswerTo(rig, "remove again"), "OK");
  EXPECT_THAT(AnswerTo(rig, "drain again"), HasSubstr("retired"));
  EXPECT_TRUE(rig.Sync().status.ok());
}

// Where agents launch engines themselves.
TEST(Remove, WithoutFaultToleranceHoldsAndKillsByItsAgent) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.ClearTrace();
  Ask(rig, "remove", SlotAction::kRemove, 0);
  rig.RunUntilQuiet();
  EXPECT_EQ(AnswerTo(rig, "remove"), "OK");
  EXPECT_LT(rig.traced_at("0 hold"), rig.traced_at("0 kill"));
  EXPECT_TRUE(rig.engine(0).dead());
  rig.Launch(0);  // its agent does not know
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.state(0), SlotState::kRetired);
}

TEST(Service, RefusesWhatCannotBe) {
  FleetRig rig(CatchingUp());
  Serve(rig);
  Ask(rig, "unknown", SlotAction::kDrain, 9);
  Ask(rig, "add", SlotAction::kAdd, 0);
  Ask(rig, "drain", SlotAction::kDrain, 0);
  rig.RunFor(seconds(2));
  Ask(rig, "restart", SlotAction::kRestart, 0);
  rig.RunUntilQuiet();
  EXPECT_THAT(AnswerTo(rig, "unknown"), HasSubstr("NOT_FOUND: the fleet has no engine slot 9"));
  EXPECT_EQ(AnswerTo(rig, "add"), "OK");
  EXPECT_THAT(AnswerTo(rig, "restart"), HasSubstr("drained (refit engine add 0)"));
  Ask(rig, "drain 1", SlotAction::kDrain, 1);
  rig.RunFor(seconds(2));
  EXPECT_THAT(rig.Sync().status.ToString(), HasSubstr("0 engines in service"));
}

// RX-JRNL-01, -04, RX-MEM-05: a successor knows who was added, who is drained and who is gone, and ends what was begun.
TEST(Service, OutlivesTheController) {
  FleetRig rig(CatchingUp(3));
  Serve(rig);
  Ask(rig, "add", SlotAction::kAdd, 7);
  Ask(rig, "drain", SlotAction::kDrain, 0);
  Ask(rig, "remove", SlotAction::kRemove, 1);
  rig.RunFor(seconds(10));
  rig.on_drain = [](SlotIndex) { return std::nullopt; };
  Ask(rig, "remove 2", SlotAction::kRemove, 2);
  rig.RunFor(seconds(1));
  EXPECT_EQ(ServiceOf(rig, 2), "removing");
  rig.TakeOver();
  rig.RunFor(seconds(30));
  EXPECT_EQ(rig.state(1), SlotState::kRetired);
  EXPECT_EQ(rig.state(2), SlotState::kRetired);
  EXPECT_TRUE(rig.engine(2).dead());
  EXPECT_EQ(ServiceOf(rig, 0), "drained");
  EXPECT_FALSE(rig.engine(0).dead());
  EXPECT_TRUE(rig.engine(0).paused());
  EXPECT_FALSE(rig.routed(0));
  EXPECT_TRUE(rig.engine(7).serves(WeightVersion(1)));
  EXPECT_TRUE(rig.routed(7));
  Ask(rig, "add 1", SlotAction::kAdd, 1);
  ASSERT_TRUE(rig.Sync().status.ok());
  EXPECT_THAT(AnswerTo(rig, "add 1"), HasSubstr("retired"));
  EXPECT_EQ(rig.commits().back().members.size(), 1U);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

}  // namespace
}  // namespace refit::testing
