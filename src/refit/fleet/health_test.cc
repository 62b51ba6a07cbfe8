// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refit/base/str.h"

namespace refit::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SlotIndex kSlot(0);
constexpr SlotIndex kOther(1);
constexpr Incarnation kLife{{0, 1}};
constexpr Incarnation kNext{{0, 2}};  // the life that replaces it
constexpr Incarnation kOthers{{0, 3}};

std::string Name(SlotIndex slot, Incarnation incarnation) { return StrCat(slot, "/", incarnation.low); }

struct Describe {
  std::string operator()(const StartProbe& e) const { return "probe " + Name(e.slot, e.incarnation); }
  std::string operator()(const Suspected& e) const { return StrCat("suspected ", Name(e.slot, e.incarnation)); }
  std::string operator()(const Unhealthy& e) const { return "unhealthy " + Name(e.slot, e.incarnation); }
  std::string operator()(const Quiet& e) const { return "quiet " + Name(e.slot, e.incarnation); }
  std::string operator()(const MonitorStopped& e) const { return e.outlived ? "stopped, outlived" : "stopped"; }
};

HealthOptions Graded() {
  return {.interval = seconds(10), .timeout = seconds(2), .first_wait = seconds(60), .probe_failures = 3};
}
HealthOptions Strict() {
  HealthOptions options = Graded();
  options.probe_failures = 1;
  return options;
}

class HealthTest : public ::testing::Test {
 protected:
  explicit HealthTest(HealthOptions options = Graded()) : health_(options) {}

  void SetUp() override {
    health_.Start(now_);
    health_.Watch(kSlot, kLife, now_);
  }
  // Past the grace, and serving.
  void Serve() {
    Advance(seconds(60));
    health_.Enable(kSlot, kLife, now_);
    EXPECT_THAT(Advance({}), ElementsAre("probe 0/1"));
  }
  std::vector<std::string> Take() {
    std::vector<std::string> text;
    for (const HealthEffect& effect : out_) {
      if (const auto* start = std::get_if<StartProbe>(&effect)) {
        probe_ = start->probe;
      }
      text.push_back(std::visit(Describe{}, effect));
    }
    out_.clear();
    return text;
  }
  // From deadline to deadline.
  std::vector<std::string> Advance(Duration duration) {
    const Instant end = now_ + duration;
    for (int i = 0; i < 1000 && health_.next_deadline() <= end; ++i) {
      now_ = std::max(now_, health_.next_deadline());
      health_.HandleDeadline(now_, out_);
    }
    now_ = end;
    return Take();
  }
  std::vector<std::string> EndProbe(const Status& status, Incarnation incarnation = kLife) {
    health_.OnProbeEnded(kSlot, incarnation, probe_, status, now_, out_);
    return Take();
  }
  std::vector<std::string> Request(const Status& status, Incarnation incarnation = kLife) {
    health_.OnRequest(kSlot, incarnation, status, out_);
    return Take();
  }
  std::vector<std::string> Disable(SlotIndex slot = kSlot, Incarnation incarnation = kLife) {
    health_.Disable(slot, incarnation, out_);
    return Take();
  }
  std::vector<std::string> Stop() {
    health_.Stop(now_, out_);
    return Take();
  }

  Instant now_{};
  Health health_;
  HealthEffects out_;
  std::uint64_t probe_ = 0;  // the last one started
  const Status failed_ = Unavailable("no answer");
};

class StrictHealthTest : public HealthTest {
 protected:
  StrictHealthTest() : HealthTest(Strict()) {}
};

// RC-MON-01: each I. RC-MON-03: not before it was enabled, which is after `resume`.
TEST_F(HealthTest, ProbesEachIntervalOnceItIsEnabled) {
  EXPECT_THAT(Advance(seconds(100)), IsEmpty());
  health_.Enable(kSlot, kLife, now_);
  EXPECT_THAT(Advance({}), ElementsAre("probe 0/1"));
  EXPECT_TRUE(health_.probing(kSlot));
  EXPECT_THAT(EndProbe(OkStatus()), IsEmpty());
  EXPECT_FALSE(health_.probing(kSlot));
  EXPECT_THAT(Advance(seconds(10) - Duration(1)), IsEmpty());
  EXPECT_THAT(Advance(Duration(1)), ElementsAre("probe 0/1"));
}

// RC-MON-02, S07: the transport may stay silent for ever; 2T is our own bound. What comes later counts no more.
TEST_F(StrictHealthTest, AProbeWithoutAnyAnswerHasFailedAfterTwiceItsTimeout) {
  Serve();
  EXPECT_THAT(Advance(seconds(4) - Duration(1)), IsEmpty());
  EXPECT_THAT(Advance(Duration(1)), ElementsAre("unhealthy 0/1"));
  EXPECT_THAT(EndProbe(OkStatus()), IsEmpty());
  EXPECT_THAT(Advance(seconds(100)), IsEmpty());
}

// RC-MON-04, S09: a flag is not enough.
TEST_F(HealthTest, DisablingIsAnsweredOnlyWhenNoProbeIsInFlight) {
  Serve();
  EXPECT_THAT(Disable(), IsEmpty());
  EXPECT_THAT(EndProbe(OkStatus()), ElementsAre("quiet 0/1"));
  EXPECT_THAT(Advance(seconds(100)), IsEmpty()) << "after the answer none can start";
  EXPECT_THAT(Disable(), ElementsAre("quiet 0/1"));
}

// RC-MON-04: the kill that a probe caused is a part of it.
TEST_F(StrictHealthTest, DisablingIsAnsweredOnlyWhenTheKillHasEnded) {
  Serve();
  EXPECT_THAT(Disable(), IsEmpty());
  EXPECT_THAT(EndProbe(failed_), ElementsAre("unhealthy 0/1"));
  health_.OnKillEnded(kSlot, kNext, out_);
  EXPECT_THAT(Take(), IsEmpty());
  health_.OnKillEnded(kSlot, kLife, out_);
  EXPECT_THAT(Take(), ElementsAre("quiet 0/1"));
}

TEST_F(HealthTest, DisablingWaitsNoLongerThanAProbeMayTake) {
  Serve();
  EXPECT_THAT(Disable(), IsEmpty());
  EXPECT_THAT(Advance(seconds(4)), ElementsAre("suspected 0/1", "quiet 0/1"));
}

TEST_F(HealthTest, NobodyWaitsForALifeThatIsGone) {
  Serve();
  Disable();
  health_.Forget(kSlot, kLife, out_);
  EXPECT_THAT(Take(), ElementsAre("quiet 0/1"));
  EXPECT_THAT(Disable(), ElementsAre("quiet 0/1"));
  health_.Watch(kSlot, kNext, now_);
  health_.Enable(kSlot, kNext, now_);
  Advance(seconds(60));
  EXPECT_THAT(Disable(kSlot, kNext), IsEmpty());
  health_.Watch(kSlot, kLife, now_);
  EXPECT_THAT(Advance({}), ElementsAre("quiet 0/2"));
}

// RC-MON-05, S12: an absolute deadline. Paused time counts, and enabling does not touch it.
TEST_F(HealthTest, PhasesShorterThanTheGraceDoNotPutProbingOff) {
  std::size_t probes = 0;
  for (int cycle = 0; cycle < 6; ++cycle) {
    health_.Enable(kSlot, kLife, now_);
    probes += Advance({}).size();
    EndProbe(OkStatus());
    probes += Advance(seconds(5)).size();
    Disable();
    probes += Advance(seconds(15)).size();
  }
  EXPECT_EQ(probes, 3U) << "in each phase after the first minute";
}

// RC-MON-06: a life that was launched now is still loading.
TEST_F(HealthTest, EachNewLifeHasItsOwnGrace) {
  Serve();
  EndProbe(OkStatus());
  health_.Forget(kSlot, kLife, out_);
  health_.Watch(kSlot, kNext, now_);
  health_.Enable(kSlot, kNext, now_);
  EXPECT_THAT(Advance(seconds(60) - Duration(1)), IsEmpty());
  EXPECT_THAT(Advance(Duration(1)), ElementsAre("probe 0/2"));
}

// RC-MON-01. A life that has just told of itself is not asked at once: a successor would keep its first sync waiting.
TEST(Health, AlsoTheFirstProbeComesAnIntervalLater) {
  Health health({.interval = seconds(10), .timeout = seconds(2), .probe_failures = 3});
  const Instant now{seconds(7)};
  health.Start(now);
  health.Watch(kSlot, kLife, now);
  health.Enable(kSlot, kLife, now);
  EXPECT_EQ(health.next_deadline(), now + seconds(10));
}

TEST_F(HealthTest, ALifeThatRegistersAgainKeepsItsGrace) {
  Advance(seconds(40));
  health_.Watch(kSlot, kLife, now_);
  health_.Enable(kSlot, kLife, now_);
  EXPECT_THAT(Advance(seconds(20)), ElementsAre("probe 0/1"));
}

class SlowHealthTest : public HealthTest {
 protected:
  SlowHealthTest() : HealthTest({.interval = seconds(1), .timeout = seconds(30), .first_wait = seconds(60)}) {}
};

// RC-MON-07, S11: bounded by T + I + 5 s. The late answer finds everything as it was, and decides nothing.
TEST_F(SlowHealthTest, StoppingOutlivesAStuckProbe) {
  Serve();
  EXPECT_THAT(Stop(), IsEmpty());
  EXPECT_THAT(Advance(seconds(36) - Duration(1)), IsEmpty());
  EXPECT_THAT(Advance(Duration(1)), ElementsAre("stopped, outlived"));
  EXPECT_EQ(health_.phase(), HealthPhase::kOff);
  EXPECT_THAT(EndProbe(failed_), IsEmpty());
  EXPECT_THAT(Advance(seconds(100)), IsEmpty());
}

TEST_F(SlowHealthTest, StoppingIsAnsweredAsSoonAsNothingIsInFlight) {
  Serve();
  EXPECT_THAT(Stop(), IsEmpty());
  EXPECT_THAT(Stop(), IsEmpty()) << "one answer for both";
  EXPECT_THAT(EndProbe(failed_), ElementsAre("stopped")) << "and nothing is decided any more";
}

TEST_F(StrictHealthTest, StoppingWaitsForAKillThatAProbeCaused) {
  Serve();
  EndProbe(failed_);
  EXPECT_THAT(Stop(), IsEmpty());
  health_.OnKillEnded(kSlot, kLife, out_);
  EXPECT_THAT(Take(), ElementsAre("stopped"));
}

// RC-MON-08
TEST_F(HealthTest, StartingTwiceKeepsOneRoundOfProbes) {
  Serve();
  health_.Start(now_);
  EXPECT_THAT(Advance(Duration(1)), IsEmpty()) << "one is in flight";
}

TEST(Health, WithoutEnginesThereIsNothingToDo) {
  Health health(Graded());
  HealthEffects out;
  health.Start(Instant{});
  EXPECT_EQ(health.next_deadline(), kNever);
  health.HandleDeadline(Instant{} + seconds(1000), out);
  EXPECT_THAT(out, IsEmpty());
}

TEST(Health, StoppingWhatWasNotStartedIsAnsweredAtOnce) {
  Health health(Graded());
  HealthEffects out;
  health.Stop(Instant{}, out);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_FALSE(std::get<MonitorStopped>(out[0]).outlived);
  EXPECT_EQ(health.next_deadline(), kNever);
}

TEST_F(HealthTest, StartedAgainItWaitsUntilLivesAreEnabled) {
  Serve();
  EndProbe(OkStatus());
  Stop();
  health_.Start(now_);
  EXPECT_THAT(Advance(seconds(100)), IsEmpty());
  health_.Enable(kSlot, kLife, now_);
  EXPECT_THAT(Advance({}), ElementsAre("probe 0/1"));
}

// RC-MON-10, S10: between a probe and what follows from it the slot may be filled again.
TEST_F(StrictHealthTest, AProbeOfALifeThatWasReplacedSaysNothingOfTheNext) {
  Serve();
  health_.Watch(kSlot, kNext, now_);
  health_.Enable(kSlot, kNext, now_);
  EXPECT_THAT(EndProbe(failed_, kLife), IsEmpty());
  EXPECT_THAT(Advance(seconds(60)), ElementsAre("probe 0/2"));
  EXPECT_THAT(EndProbe(failed_, kLife), IsEmpty());
  EXPECT_THAT(EndProbe(OkStatus(), kNext), IsEmpty());
}

// RC-MON-11: `resume` of one engine says nothing about another.
TEST_F(HealthTest, EachLifeHasItsOwnSwitch) {
  health_.Watch(kOther, kOthers, now_);
  Advance(seconds(60));
  health_.Enable(kOther, kOthers, now_);
  EXPECT_THAT(Advance({}), ElementsAre("probe 1/3"));
  EXPECT_THAT(Disable(), ElementsAre("quiet 0/1")) << "the other's probe holds up nothing here";
  health_.Enable(kSlot, kNext, now_);  // a life that is not the slot's
  EXPECT_THAT(Advance({}), IsEmpty());
}

// RX-QUAR-06: two failures are reported only, a success forgets them, three in a row end the life.
TEST_F(HealthTest, SuspicionIsGraded) {
  Serve();
  EXPECT_THAT(EndProbe(failed_), ElementsAre("suspected 0/1"));
  EXPECT_THAT(Advance(seconds(10)), ElementsAre("probe 0/1"));
  EXPECT_THAT(EndProbe(OkStatus()), IsEmpty());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Advance(seconds(10)), ElementsAre("probe 0/1"));
    EXPECT_THAT(EndProbe(failed_), ElementsAre("suspected 0/1"));
  }
  EXPECT_THAT(Advance(seconds(10)), ElementsAre("probe 0/1"));
  health_.OnProbeEnded(kSlot, kLife, probe_, failed_, now_, out_);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(std::get<Unhealthy>(out_[0]).reason, "3 probes in a row failed: UNAVAILABLE: no answer");
  Take();
  health_.Enable(kSlot, kLife, now_);
  EXPECT_THAT(Advance(seconds(100)), IsEmpty()) << "nothing brings it back";
}

// RX-QUAR-06: what a refit in between pauses is not forgotten.
TEST_F(HealthTest, AStreakOutlastsAPause) {
  Serve();
  EndProbe(failed_);
  Disable();
  Advance(seconds(100));
  health_.Enable(kSlot, kLife, now_);
  Advance({});
  EndProbe(failed_);
  Advance(seconds(10));
  EXPECT_THAT(EndProbe(failed_), ElementsAre("unhealthy 0/1"));
}

// RC-MON-02: in profile `strict` the first one ends it.
TEST_F(StrictHealthTest, TheFirstFailedProbeIsEnoughWhereTheProfileSaysSo) {
  Serve();
  EXPECT_THAT(EndProbe(failed_), ElementsAre("unhealthy 0/1"));
}

// RX-QUAR-06, S08: a wedged engine answers probes; only a request that succeeds clears what requests have seen.
TEST_F(HealthTest, ProbesDoNotClearTheStreakOfRequests) {
  Serve();
  EXPECT_THAT(Request(failed_), IsEmpty());
  EXPECT_THAT(Request(OkStatus()), IsEmpty());
  EXPECT_THAT(Request(failed_), IsEmpty());
  EXPECT_THAT(Request(failed_), IsEmpty());
  EXPECT_THAT(EndProbe(OkStatus()), IsEmpty());
  EXPECT_THAT(Request(failed_), ElementsAre("unhealthy 0/1"));
  EXPECT_THAT(Request(failed_), IsEmpty()) << "said once";
}

TEST_F(HealthTest, RequestsThatAPauseEndsAreNotTheEnginesFault) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Request(failed_), IsEmpty());
  }
}

// RX-QUAR-07: late evidence of a dead life.
TEST_F(HealthTest, RequestsOfADeadLifeDoNotCountForTheNext) {
  Serve();
  health_.Watch(kSlot, kNext, now_);
  health_.Enable(kSlot, kNext, now_);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Request(failed_, kLife), IsEmpty());
  }
  EXPECT_THAT(Disable(kSlot, kLife), ElementsAre("quiet 0/1"));
  health_.OnKillEnded(kSlot, kLife, out_);
  health_.Forget(kSlot, kLife, out_);
  EXPECT_THAT(Advance(seconds(60)), ElementsAre("probe 0/2"));
}

TEST(Health, PhasesHaveNames) {
  EXPECT_EQ(ToString(HealthPhase::kOff), "off");
  EXPECT_EQ(ToString(HealthPhase::kRunning), "running");
  EXPECT_EQ(ToString(HealthPhase::kStopping), "stopping");
}

}  // namespace
}  // namespace refit::fleet
