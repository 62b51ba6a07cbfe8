// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refit/base/str.h"

namespace refit::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SlotIndex kSlotA(1);
constexpr SlotIndex kSlotB(3);
constexpr SlotIndex kSurvivor(2);
constexpr Incarnation kLifeA{{0, 10}};
constexpr Incarnation kLifeB{{0, 30}};
constexpr Incarnation kNobody;

struct Describe {
  std::string operator()(const LaunchSlot& e) const { return StrCat("launch ", e.slot); }
  std::string operator()(const Offload& e) const { return StrCat("offload ", e.slot, "/", e.incarnation.low); }
  std::string operator()(const RollBack& e) const { return StrCat("roll back ", e.slot, "/", e.incarnation.low); }
  std::string operator()(const RecoveryEnded& e) const {
    std::string text = "ended " + e.status.ToString();
    for (const FilledSlot& filled : e.filled) {
      text += StrCat(" +", filled.slot, "/", filled.incarnation.low);
    }
    for (const SlotIndex zombie : e.zombies) {
      text += StrCat(" zombie ", zombie);
    }
    return text;
  }
};

RecoveryOptions Cohort() { return {.slots = {kSlotA, kSlotB}, .launch_budget = seconds(100)}; }
RecoveryOptions Offloading() {
  RecoveryOptions options = Cohort();
  options.needs_offload = true;
  return options;
}

class RecoveryTest : public ::testing::Test {
 protected:
  explicit RecoveryTest(RecoveryOptions options = Cohort()) : recovery_(std::move(options)) {}

  std::vector<std::string> Take() {
    std::vector<std::string> text;
    for (const RecoveryEffect& effect : out_) {
      text.push_back(std::visit(Describe{}, effect));
    }
    out_.clear();
    return text;
  }
  std::vector<std::string> Start() {
    recovery_.Start(now_, out_);
    return Take();
  }
  std::vector<std::string> Launched(SlotIndex slot, Incarnation incarnation) {
    recovery_.OnLaunched(slot, incarnation, now_, out_);
    return Take();
  }
  std::vector<std::string> LaunchFailed(SlotIndex slot, const Status& status) {
    recovery_.OnLaunchFailed(slot, status, out_);
    return Take();
  }
  std::vector<std::string> Offloaded(SlotIndex slot, Incarnation incarnation, const Status& status = OkStatus()) {
    recovery_.OnOffloaded(slot, incarnation, status, out_);
    return Take();
  }
  std::vector<std::string> Died(SlotIndex slot, Incarnation incarnation) {
    recovery_.OnDied(slot, incarnation, Unavailable("its process ended"), out_);
    return Take();
  }
  enum class Kill { kConfirmed, kFailed };
  std::vector<std::string> RolledBack(SlotIndex slot, Kill kill = Kill::kConfirmed) {
    recovery_.OnRolledBack(slot, kill == Kill::kConfirmed, out_);
    return Take();
  }
  std::vector<std::string> Cancel() {
    recovery_.Cancel(Status(StatusCode::kCancelled, "by the operator"), out_);
    return Take();
  }
  std::vector<std::string> Deadline() {
    if (recovery_.next_deadline() == kNever) {
      return {"waits for ever"};
    }
    now_ = recovery_.next_deadline();
    recovery_.HandleDeadline(now_, out_);
    return Take();
  }

  Instant now_{};
  Recovery recovery_;
  RecoveryEffects out_;
  const Status broken_ = Unavailable("port taken");
};

class OffloadingRecoveryTest : public RecoveryTest {
 protected:
  OffloadingRecoveryTest() : RecoveryTest(Offloading()) {}
  void Launch() {
    Start();
    Launched(kSlotA, kLifeA);
    EXPECT_THAT(Launched(kSlotB, kLifeB), ElementsAre("offload 1/10", "offload 3/30"));
  }
};

// RC-REC-08: as many as were empty, and exactly these are reported.
TEST_F(RecoveryTest, EndsWellOnlyWhenEverySlotIsFilled) {
  EXPECT_THAT(Start(), ElementsAre("launch 1", "launch 3"));
  EXPECT_THAT(Start(), IsEmpty());
  EXPECT_THAT(Launched(kSlotB, kLifeB), IsEmpty());
  EXPECT_THAT(Launched(kSlotB, kLifeB), IsEmpty()) << "the same one, told twice";
  EXPECT_THAT(Launched(kSlotA, kLifeA), ElementsAre("ended OK +1/10 +3/30"));
  EXPECT_EQ(recovery_.next_deadline(), kNever);
  EXPECT_EQ(recovery_.phase(), RecoveryPhase::kEnded);
  EXPECT_THAT(Cancel(), IsEmpty());
}

// RC-REC-03: the offload transition belongs to the attempt.
TEST_F(OffloadingRecoveryTest, OffloadingIsAPartOfTheAttempt) {
  Launch();
  EXPECT_THAT(Offloaded(kSlotA, kLifeA), IsEmpty());
  EXPECT_THAT(Offloaded(kSlotB, kLifeB), ElementsAre("ended OK +1/10 +3/30"));
}

// RC-REC-03, S13
TEST_F(OffloadingRecoveryTest, AFailedOffloadRollsAllBack) {
  Launch();
  EXPECT_THAT(Offloaded(kSlotA, kLifeA), IsEmpty());
  EXPECT_THAT(Offloaded(kSlotB, kLifeB, broken_), ElementsAre("roll back 1/10", "roll back 3/30"));
  EXPECT_THAT(RolledBack(kSlotB), IsEmpty());
  EXPECT_THAT(RolledBack(kSlotA), ElementsAre("ended UNAVAILABLE: offload of slot 3: port taken"));
}

TEST_F(OffloadingRecoveryTest, AnOffloadWithoutAnAnswerRollsAllBack) {
  Launch();
  Offloaded(kSlotA, kLifeA);
  EXPECT_EQ(recovery_.next_deadline(), now_ + seconds(100));
  EXPECT_THAT(Deadline(), ElementsAre("roll back 1/10", "roll back 3/30"));
  RolledBack(kSlotA);
  EXPECT_THAT(RolledBack(kSlotB), ElementsAre(HasSubstr("slot 3 did not offload within 100000 ms")));
}

// RC-REC-04, S16: one of two does not start. The one that did is ended, and so is whatever the failed launch left.
TEST_F(RecoveryTest, OneFailedLaunchRollsBackTheWholeCohort) {
  Start();
  Launched(kSlotA, kLifeA);
  EXPECT_THAT(LaunchFailed(kSlotB, broken_), ElementsAre("roll back 1/10", "roll back 3/0"));
  EXPECT_EQ(recovery_.phase(), RecoveryPhase::kRollingBack);
  EXPECT_THAT(RolledBack(kSlotA), IsEmpty());
  EXPECT_THAT(RolledBack(kSlotA), IsEmpty()) << "told twice";
  EXPECT_THAT(RolledBack(kSlotB), ElementsAre("ended UNAVAILABLE: launch of slot 3: port taken"));
}

// RC-REC-04: a launch that was not answered may yet fill its slot.
TEST_F(RecoveryTest, LaunchesWithoutAnAnswerAreRolledBackAsWell) {
  Start();
  EXPECT_THAT(LaunchFailed(kSlotA, broken_), ElementsAre("roll back 1/0", "roll back 3/0"));
  EXPECT_THAT(RolledBack(kSlotA), IsEmpty());
  EXPECT_THAT(Launched(kSlotB, kLifeB), ElementsAre("roll back 3/30")) << "it was on its way";
  EXPECT_THAT(RolledBack(kSlotB), ElementsAre("ended UNAVAILABLE: launch of slot 1: port taken"));
}

// RC-REC-04: nothing waits for ever, neither a launch nor the rollback.
TEST_F(RecoveryTest, TheWholeIsBoundedInTime) {
  Start();
  Launched(kSlotA, kLifeA);
  EXPECT_EQ(recovery_.next_deadline(), now_ + seconds(100));
  recovery_.HandleDeadline(now_ + seconds(99), out_);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(Deadline(), ElementsAre("roll back 1/10", "roll back 3/0"));
  RolledBack(kSlotA);
  EXPECT_THAT(Deadline(), ElementsAre(HasSubstr("zombie 3")));
  EXPECT_EQ(now_, Instant{} + seconds(300));
}

// RC-REC-05, S14: both errors, and the slot that nothing may be started in.
TEST_F(RecoveryTest, AFailedRollbackCarriesBothErrors) {
  Start();
  Launched(kSlotA, kLifeA);
  LaunchFailed(kSlotB, broken_);
  RolledBack(kSlotA, Kill::kFailed);
  EXPECT_THAT(RolledBack(kSlotB),
              ElementsAre("ended INTERNAL: RecoveryRollbackError: the death of slot 1 was not confirmed; rolled back "
                          "because of UNAVAILABLE: launch of slot 3: port taken (end what still runs there by hand) "
                          "zombie 1"));
}

// RC-REC-04: the original error is what is reported, whatever follows it.
TEST_F(RecoveryTest, TheFirstErrorWins) {
  Start();
  LaunchFailed(kSlotB, broken_);
  EXPECT_THAT(LaunchFailed(kSlotA, Internal("another")), IsEmpty());
  EXPECT_THAT(Cancel(), IsEmpty());
  EXPECT_THAT(Died(kSlotA, kLifeA), IsEmpty());
  RolledBack(kSlotA);
  EXPECT_THAT(RolledBack(kSlotB), ElementsAre("ended UNAVAILABLE: launch of slot 3: port taken"));
}

// RC-REC-04, RC-TERM-06: Ctrl-C during a recovery still rolls back.
TEST_F(RecoveryTest, CancellationIsHandledLikeAnyFailure) {
  Start();
  Launched(kSlotB, kLifeB);
  EXPECT_THAT(Cancel(), ElementsAre("roll back 1/0", "roll back 3/30"));
  RolledBack(kSlotA);
  EXPECT_THAT(RolledBack(kSlotB), ElementsAre("ended CANCELLED: by the operator"));
}

TEST_F(OffloadingRecoveryTest, CancellationWhileOffloadingRollsBack) {
  Launch();
  EXPECT_THAT(Cancel(), ElementsAre("roll back 1/10", "roll back 3/30"));
}

TEST_F(RecoveryTest, WhatIsCancelledBeforeItStartsTouchesNothing) {
  EXPECT_THAT(Cancel(), ElementsAre("ended CANCELLED: by the operator"));
  EXPECT_THAT(Start(), IsEmpty());
}

// RC-REC-03: a filled slot that dies before the attempt has ended fails all of it.
TEST_F(RecoveryTest, ADeathInMidRecoveryRollsAllBack) {
  Start();
  Launched(kSlotA, kLifeA);
  EXPECT_THAT(Died(kSlotA, kLifeB), IsEmpty()) << "another life";
  EXPECT_THAT(Died(kSlotB, kNobody), IsEmpty()) << "not filled yet";
  EXPECT_THAT(Died(kSlotA, kLifeA), ElementsAre("roll back 1/10", "roll back 3/0"));
}

TEST_F(OffloadingRecoveryTest, ASecondLifeInASlotMeansThatTheFirstHasDied) {
  Launch();
  EXPECT_THAT(Launched(kSlotA, Incarnation{{0, 11}}), ElementsAre("roll back 1/11", "roll back 3/30"));
}

// RC-REC-07: survivors are nothing to it.
TEST_F(RecoveryTest, SlotsOfOthersAreNotTouched) {
  Start();
  EXPECT_TRUE(recovery_.concerns(kSlotA));
  EXPECT_FALSE(recovery_.concerns(kSurvivor));
  EXPECT_THAT(Launched(kSurvivor, kLifeA), IsEmpty());
  EXPECT_THAT(LaunchFailed(kSurvivor, broken_), IsEmpty());
  EXPECT_THAT(Died(kSurvivor, kLifeA), IsEmpty());
  EXPECT_THAT(Offloaded(kSurvivor, kLifeA, broken_), IsEmpty());
  EXPECT_THAT(LaunchFailed(kSlotA, broken_), ElementsAre("roll back 1/0", "roll back 3/0"));
  EXPECT_THAT(RolledBack(kSurvivor), IsEmpty());
}

// Profile `resilient`: one recovery per slot.
TEST(Recovery, OneSlotIsACohortOfOne) {
  Recovery recovery({.slots = {kSlotA}, .launch_budget = seconds(1)});
  RecoveryEffects out;
  recovery.Start(Instant{}, out);
  recovery.OnLaunched(kSlotA, kLifeA, Instant{}, out);
  EXPECT_EQ(Describe{}(std::get<RecoveryEnded>(out.back())), "ended OK +1/10");
}

// RC-REC-02
TEST(RecoveryDeathTest, OfNoSlotIsABug) { EXPECT_DEATH(Recovery({}), "a recovery of no slot"); }

TEST(Recovery, PhasesHaveNames) {
  EXPECT_EQ(ToString(RecoveryPhase::kIdle), "idle");
  EXPECT_EQ(ToString(RecoveryPhase::kLaunching), "launching");
  EXPECT_EQ(ToString(RecoveryPhase::kOffloading), "offloading");
  EXPECT_EQ(ToString(RecoveryPhase::kRollingBack), "rolling back");
  EXPECT_EQ(ToString(RecoveryPhase::kEnded), "ended");
}

}  // namespace
}  // namespace refit::fleet
