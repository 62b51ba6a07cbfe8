// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole syncs through the controller's front door, with engines that enforce their family's contract (RC-TEST-02, -03).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/fleet_expect.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using sync::AnswerKind;
using sync::Operation;
using sync::ResidueKind;
using sync::SessionFamily;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Fault = EngineDouble::Fault;
using Calls = std::vector<std::string>;

void ExpectServes(FleetRig& rig, WeightVersion version) {
  for (const control::SlotView& slot : rig.controller().slots()) {
    EXPECT_TRUE(rig.engine(slot.slot.value()).serves(version)) << "engine " << slot.slot.value();
    EXPECT_TRUE(slot.serving);
    EXPECT_EQ(slot.version, version);
    EXPECT_TRUE(rig.agent(slot.slot.value()).residue().IsOld(version));
  }
}

// ---- RC-SESS-01

TEST(WholeSync, StrictCallsEachStepOnEveryEngineBeforeTheNext) {
  FleetRig rig({.profile = sync::kStrict, .family = SessionFamily::kC, .loads = 1});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_THAT(rig.log(), ElementsAre("0 pause", "1 pause", "0 flush", "1 flush", "0 begin", "1 begin", "0 update",
                                     "1 update", "0 end", "1 end", "0 resume", "1 resume"));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

TEST(WholeSync, ResilientLabelsInActivationAndNotInUpdates) {
  FleetRig rig({.profile = sync::kResilient, .family = SessionFamily::kB, .engines = 1, .policies = 1, .loads = 2});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).calls(), (Calls{"pause", "flush", "begin", "update", "update", "end", "label", "resume"}));
  EXPECT_THAT(rig.engine(0).update_labels(), IsEmpty());
  EXPECT_EQ(rig.engine(0).label(), WeightVersion(1));
}

TEST(WholeSync, FamilyANeverSeesAnEndAndIsAskedForASessionOnce) {
  FleetRig rig({.profile = sync::kStrict, .family = SessionFamily::kA, .engines = 1, .policies = 1, .loads = 1});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).calls(),
            (Calls{"pause", "flush", "begin", "update", "resume", "pause", "flush", "update", "resume"}));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

TEST(WholeSync, ThreeSyncsServeThreeVersionsOnEveryFamilyAndProfile) {
  for (const SessionFamily family : kFamilies) {
    for (const sync::Profile& profile : kProfiles) {
      FleetRig rig({.profile = profile, .family = family, .engines = 3, .tp_size = 2, .policies = 6});
      for (std::uint64_t version = 1; version <= 3; ++version) {
        const control::SyncAnswered answer = rig.Sync();
        ASSERT_TRUE(answer.status.ok()) << profile.name << ": " << answer.status.ToString();
        EXPECT_EQ(answer.outcome->version, WeightVersion(version));
        EXPECT_EQ(answer.outcome->published.tensors, 12U);
        EXPECT_EQ(answer.outcome->published.bytes, 120U);
        EXPECT_EQ(answer.outcome->engines[1].totals.bytes, 240U);
        EXPECT_EQ(rig.controller().committed(), WeightVersion(version));
        EXPECT_FALSE(rig.controller().stale());
        ExpectServes(rig, WeightVersion(version));
        EXPECT_FALSE(rig.leased(0));
      }
      EXPECT_THAT(rig.Violations(), IsEmpty()) << profile.name;
    }
  }
}

// RC-VER-01: one refit, one version, on every update.
TEST(WholeSync, StrictLabelsEveryUpdateWithTheOneVersion) {
  FleetRig rig({.profile = sync::kStrict, .engines = 1, .policies = 1, .loads = 2});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).update_labels(),
            (std::vector{WeightVersion(1), WeightVersion(1), WeightVersion(2), WeightVersion(2)}));
}

// RC-ROLE-01, RC-TOPO-02: a policy worker without a receiver iterates all the same.
TEST(WholeSync, SurplusPolicyWorkersDrain) {
  FleetRig rig({.engines = 1, .policies = 3});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_FALSE(rig.sent_to_nobody(0));
  EXPECT_TRUE(rig.sent_to_nobody(1));
  EXPECT_TRUE(rig.sent_to_nobody(2));
}

// RC-SESS-15, D5.
TEST(WholeSync, WithoutOffloadNothingIsOnloaded) {
  FleetRig rig({.engines = 1, .policies = 1});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).count("onload(weights)") + rig.engine(0).count("onload(kv_cache)"), 0);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

TEST(WholeSync, WhatThisAgentReleasedIsOnloadedOnceEachInItsPlace) {
  FleetRig rig({.profile = sync::kStrict, .engines = 1, .policies = 1, .loads = 1});
  rig.Release(0);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).calls(),
            (Calls{"release", "onload(weights)", "pause", "flush", "begin", "update", "end", "onload(kv_cache)",
                   "resume", "pause", "flush", "begin", "update", "end", "resume"}));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-KILL-07: it may be serving what nobody of this run published. Table 11.2, last row.
TEST(WholeSync, AnAttachedEngineIsPausedFirstAndOfFamilyCProbedWithEndBeforeItsFirstBegin) {
  FleetRig rig({.engines = 1, .policies = 1, .loads = 1, .attached = true});
  EXPECT_EQ(rig.engine(0).calls(), (Calls{"pause"}));
  EXPECT_EQ(rig.state(0), fleet::SlotState::kStale);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).calls(), (Calls{"pause", "pause", "flush", "end", "begin", "update", "end", "label", "resume",
                                          "pause", "flush", "begin", "update", "end", "label", "resume"}));
}

TEST(WholeSync, TheStallIsFromPauseSentToResumeAnswered) {
  FleetRig rig({.engines = 1, .policies = 1});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_NE(answer.outcome->engines[0].pause_sent, Instant{});
  EXPECT_GE(answer.outcome->engines[0].resume_answered, answer.outcome->engines[0].pause_sent);
}

// RX-COMMIT-12: one slow flush does not hold up the others' `begin`; but nobody is sent a load before all are ready,
// and nobody resumes before the decision.
TEST(WholeSync, ResilientEnginesWaitForEachOtherAtTwoBarriersOnly) {
  FleetRig rig({.profile = sync::kResilient, .loads = 1});
  rig.engine(0).SetFault(Operation::kFlush, {.times = 2});
  EXPECT_TRUE(rig.Sync().status.ok());
  const auto at = [&rig](const char* call) { return std::find(rig.log().begin(), rig.log().end(), call); };
  const auto flushed = at("0 begin") - 1;
  EXPECT_EQ(*flushed, "0 flush");
  EXPECT_LT(at("1 begin"), flushed);
  EXPECT_LT(at("0 begin"), std::min(at("0 update"), at("1 update")));
  EXPECT_LT(std::max(at("0 end"), at("1 end")), std::min(at("0 resume"), at("1 resume")));
}

// RX-XFER-08: the weights are leased before anybody is paused, and given back when the refit has concluded, however.
TEST(WholeSync, TheLeaseLastsFromBeforeThePauseUntilTheEnd) {
  FleetRig rig({});
  for (const bool fails : {false, true}) {
    int seen = 0;
    rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand&) {
      EXPECT_TRUE(rig.leased(0) && rig.leased(1));
      return ++seen > 0;
    };
    for (std::uint32_t slot = 0; fails && slot < 2; ++slot) {
      rig.engine(slot).SetFault(Operation::kUpdate, {});
    }
    EXPECT_EQ(rig.Sync().status.ok(), !fails);
    EXPECT_GT(seen, 0);
    EXPECT_FALSE(rig.leased(0) || rig.leased(1));
  }
}

// RX-SUM-05, settled D8: the lease of a success is held until the hashes that it must show are computed.
TEST(WholeSync, VerifyAlwaysKeepsTheLeaseOfASuccessUntilTheHashesAreTaken) {
  FleetRig rig({.keep_lease = true});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.leased(0) && rig.leased(1));
  rig.Deliver(control::HashesTaken{});
  rig.RunUntilQuiet();
  EXPECT_FALSE(rig.leased(0) || rig.leased(1));
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.Sync().status.ok());  // nobody took the hashes: the next lease ends the one before
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// ---- RC-TEST-04: the envelope's eight mutants, each killed by a test that names it. (8), in_place, cannot be
// expressed in sync::PauseMode; config/ refuses the word.

TEST(Envelope, Mutant1BeginStandsBeforeTheTransfer) {
  FleetRig rig({.profile = sync::kStrict, .engines = 1, .policies = 1, .loads = 1});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).calls(), (Calls{"pause", "flush", "begin", "update", "end", "resume"}));
}

// RC-SESS-04: never where begin did not succeed. A stray `end` kills family B.
TEST(Envelope, Mutant2EndIsSentOnlyWhereBeginSucceeded) {
  for (const SessionFamily family : {SessionFamily::kB, SessionFamily::kC}) {
    FleetRig rig({.profile = sync::kStrict, .family = family, .engines = 1, .policies = 1});
    rig.engine(0).SetFault(Operation::kFlush, {.times = 1000});
    EXPECT_FALSE(rig.Sync().status.ok());
    EXPECT_EQ(rig.engine(0).count("end"), 0);
    EXPECT_EQ(rig.engine(0).count("resume"), 1);
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

TEST(Envelope, Mutant3ResumeAlsoFollowsARefusalBeforeTheTransfer) {
  FleetRig rig({.profile = sync::kStrict});
  rig.engine(1).SetFault(Operation::kPause, {});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("engine 1: pause refused: fault in pause"));
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(0)));
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(0)));
}

// RC-SESS-02: the double detects tokens of mixed weights.
TEST(Envelope, Mutant4PausePrecedesEverything) {
  FleetRig rig({.profile = sync::kStrict, .engines = 1, .policies = 1});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).calls().front(), "pause");
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-SESS-03: flush fails -> no begin.
TEST(Envelope, Mutant5AFailedFlushEndsThePreparation) {
  FleetRig rig({.profile = sync::kStrict});
  rig.engine(1).SetFault(Operation::kFlush, {.times = 1000});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(),
              HasSubstr("engine 1: flush still refused when its budget ended: fault in flush"));
  EXPECT_EQ(rig.engine(0).count("begin") + rig.engine(1).count("begin"), 0);
  EXPECT_GT(rig.engine(1).count("flush"), 10);
}

TEST(Envelope, Mutant6TheKvPoolIsReacquiredBeforeResume) {
  FleetRig rig({.profile = sync::kStrict, .engines = 1, .policies = 1});
  rig.Release(0);
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).count("onload(kv_cache)"), 1);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

TEST(Envelope, Mutant7SessionEnginesNeverSeeTheBareTransfer) {
  for (const SessionFamily family : {SessionFamily::kB, SessionFamily::kC}) {
    FleetRig rig({.profile = sync::kStrict, .family = family, .engines = 1, .policies = 1});
    EXPECT_TRUE(rig.Sync().status.ok());
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

// RC-SESS-03: once, and none after the transfer.
TEST(Envelope, FlushHappensOnceBeforeBegin) {
  FleetRig rig({.profile = sync::kStrict, .engines = 1, .policies = 1});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(0).count("flush"), 1);
}

// RC-TEST-02: the gate bites.
TEST(EngineDouble, EnforcesItsFamilyAndNotesBrokenPromises) {
  EngineDouble b(SessionFamily::kB, 2);
  EXPECT_EQ(b.Call(Operation::kEnd, {}).kind, AnswerKind::kNone);
  EXPECT_TRUE(b.dead());
  EngineDouble c(SessionFamily::kC, 2);
  EXPECT_EQ(c.Call(Operation::kEnd, {}).kind, AnswerKind::kRefused);
  EXPECT_EQ(c.Update(0, WeightVersion(1), {}).kind, AnswerKind::kRefused);
  EXPECT_EQ(c.Call(Operation::kFlush, {}).kind, AnswerKind::kRefused);
  EngineDouble a(SessionFamily::kA, 2);
  EXPECT_EQ(a.Call(Operation::kBegin, {}).kind, AnswerKind::kNotFound);
  EXPECT_EQ(a.Update(0, WeightVersion(1), {}).kind, AnswerKind::kOk);
  EXPECT_EQ(a.Call(Operation::kResume, {}).kind, AnswerKind::kOk);
  EXPECT_THAT(a.violations(), ElementsAre(HasSubstr("while it generates"), HasSubstr("KV of the outgoing"),
                                          HasSubstr("mix of weights")));
  EXPECT_EQ(a.Call(Operation::kOnloadWeights, {}).kind, AnswerKind::kNone);
  EXPECT_TRUE(a.dead());
}

}  // namespace
}  // namespace refit::testing
