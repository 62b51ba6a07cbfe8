// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Failures of a refit that need their own words; the rows that go by a table are in failure_matrix_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "refit/base/str.h"
#include "tests/support/fleet_expect.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using sync::Operation;
using sync::ResidueKind;
using sync::SessionFamily;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = sync::AgentCommandKind;

// RC-SESS-06: a pause that is refused may have half applied.
TEST(Failure, ARefusedPauseIsResumedOnce) {
  FleetRig rig({.profile = sync::kStrict});
  rig.engine(1).SetFault(Operation::kPause, {.runs = true});
  EXPECT_FALSE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(1).count("resume"), 1);
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(0)));
}

// RX-COMMIT-07, C1: back to what is published goes who holds it, and the controller asks nobody else to.
TEST(Failure, WhoHoldsAnotherVersionIsNotAskedToResume) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.LoseAgent(1);
  rig.Launch(1);
  for (const std::uint32_t slot : {0U, 1U}) {
    rig.engine(slot).SetFault(Operation::kPause, {});
  }
  EXPECT_FALSE(rig.Sync().status.ok());
  const auto resumes = [&rig](std::uint32_t slot) {
    const std::vector<sync::AgentCommand>& sent = rig.commands(slot);
    return std::count_if(sent.begin(), sent.end(), [](const auto& each) { return each.kind == Kind::kResumeOld; });
  };
  EXPECT_EQ(resumes(0), 1);
  EXPECT_EQ(resumes(1), 0);
}

// RC-SESS-05: begun is tracked per engine.
TEST(Failure, BeginRefusedOnOneEndsTheOthersSessionOnly) {  // S38
  FleetRig rig({.profile = sync::kStrict, .family = SessionFamily::kB});
  rig.engine(1).SetFault(Operation::kBegin, {});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("engine 1: begin refused: fault in begin"));
  EXPECT_EQ(rig.engine(0).count("end"), 1);
  EXPECT_EQ(rig.engine(1).count("end"), 0);
  EXPECT_TRUE(rig.engine(1).dead());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(0)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-SESS-07: end, then the KV pool, then resume.
TEST(Failure, BeforeTheTransferTheOrderBackIsEndKvResume) {
  FleetRig rig({.profile = sync::kStrict, .family = SessionFamily::kC});
  rig.Release(0);
  rig.engine(1).SetFault(Operation::kBegin, {.times = 2});
  EXPECT_FALSE(rig.Sync().status.ok());
  const std::vector<std::string>& calls = rig.engine(0).calls();
  ASSERT_GE(calls.size(), 3U);
  EXPECT_EQ(std::vector<std::string>(calls.end() - 3, calls.end()),
            (std::vector<std::string>{"end", "onload(kv_cache)", "resume"}));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-SESS-07: if re-acquiring fails, no resume; it is reported beside the original error.
TEST(Failure, WithoutItsKvPoolAnEngineIsNotResumedAndTheFirstErrorStands) {  // S41
  FleetRig rig({.profile = sync::kStrict});
  rig.Release(0);
  rig.engine(0).SetFault(Operation::kOnloadKvCache, {});
  rig.engine(1).SetFault(Operation::kFlush, {.times = 1000});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("engine 1: flush"));  // RC-SESS-10
  EXPECT_THAT(answer.outcome->notes, ::testing::Contains(HasSubstr("onload(kv_cache) refused")));
  EXPECT_EQ(rig.engine(0).count("resume"), 0);
  ExpectNextSyncWorks(rig, 2);
}

// RC-RPC-05: the first in slot order is primary, whoever answered first.
TEST(Failure, AmongFailuresOfOneStepTheFirstInSlotOrderIsPrimary) {
  FleetRig rig({.profile = sync::kStrict, .engines = 3, .policies = 3});
  rig.engine(1).SetFault(Operation::kPause, {});
  rig.engine(2).SetFault(Operation::kPause, {});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("engine 1: pause"));
  EXPECT_THAT(answer.outcome->notes, ::testing::Contains(HasSubstr("engine 2: pause")));
}

// RC-SESS-08, RC-TERM-01, RC-TERM-03: nobody is resumed, nor by a later sync; the transfer's error stays primary.
TEST(Failure, StrictLatchesAFailedTransferAndResumesNobody) {
  FleetRig rig({.profile = sync::kStrict});
  rig.engine(0).SetFault(Operation::kUpdate, {.skip = 1});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("engine 0: update refused: fault in update"));  // RC-RPC-03
  EXPECT_TRUE(answer.outcome->latch);
  EXPECT_TRUE(answer.outcome->opened);
  EXPECT_EQ(rig.engine(0).count("resume") + rig.engine(1).count("resume"), 0);
  EXPECT_EQ(rig.agent(0).residue().kind, ResidueKind::kMixed);
  ExpectNextSyncWorks(rig, 2);
}

// RC-SESS-08: ambiguity in the transfer, before any update, is no reason to resume in strict either.
TEST(Failure, StrictDoesNotResumeAnEngineWhoseTransferFailedBeforeItsFirstUpdate) {
  FleetRig rig({.profile = sync::kStrict});
  rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
    if (slot.value() == 1 && command.kind == Kind::kTransfer) {
      rig.LosePolicy(1);
    }
    return true;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.outcome->latch);
  EXPECT_EQ(rig.engine(1).count("resume"), 0);
}

// C16: losing a sender is not terminal in resilient.
TEST(Failure, APolicyWorkerLostBeforeTheFirstUpdateSendsEnginesBackToTheOldVersion) {
  for (const SessionFamily family : kFamilies) {
    for (const Kind at : {Kind::kAttempt, Kind::kPause, Kind::kFlush, Kind::kBegin, Kind::kTransfer}) {
      FleetRig rig({.family = family});
      ASSERT_TRUE(rig.Sync().status.ok());
      bool lost = false;
      rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
        if (command.kind == at && !std::exchange(lost, true)) {
          rig.LosePolicy(1);
        }
        return true;
      };
      const control::SyncAnswered answer = rig.Sync();
      SCOPED_TRACE(StrCat(ToString(family), " ", ToString(at)));
      EXPECT_THAT(answer.status.message(), HasSubstr("policy rank 1"));
      EXPECT_FALSE(answer.outcome->latch);
      for (std::uint32_t slot = 0; slot < 2; ++slot) {
        ExpectResidueTable(rig, slot);
        if (at != Kind::kTransfer) {
          EXPECT_TRUE(rig.engine(slot).serves(WeightVersion(1)));
        }
      }
      EXPECT_EQ(rig.Sync().status.code(), StatusCode::kUnavailable);
      rig.JoinPolicy(1);
      ExpectNextSyncWorks(rig, 2);
      EXPECT_THAT(rig.Violations(), IsEmpty());
    }
  }
}

// RX-XFER-09: what an engine with an open session gets next goes by its family; a nested `begin` would kill family B.
TEST(Failure, APolicyWorkerLostInMidLoadLeavesMixedEnginesThatTheNextSyncRepairs) {
  for (const SessionFamily family : kFamilies) {
    FleetRig rig({.family = family});
    ASSERT_TRUE(rig.Sync().status.ok());
    rig.on_load = [&](SlotIndex slot, std::size_t load) {
      if (slot.value() == 1 && load == 1) {
        rig.LosePolicy(1);
      }
    };
    const control::SyncAnswered answer = rig.Sync();
    rig.on_load = nullptr;
    EXPECT_THAT(answer.status.message(), HasSubstr("policy rank 1"));
    EXPECT_TRUE(answer.outcome->opened);
    EXPECT_FALSE(rig.engine(1).generates());
    EXPECT_EQ(rig.agent(1).residue().kind, family == SessionFamily::kB ? ResidueKind::kUnknown : ResidueKind::kMixed);
    ExpectResidueTable(rig, 0);
    rig.JoinPolicy(1);
    ExpectNextSyncWorks(rig, 2);
    EXPECT_EQ(rig.controller().committed(), WeightVersion(3));  // 2 was burned (RX-ONCE-02)
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

// C6: the others go on.
TEST(Failure, ResilientDetachesALostAgentAtAnyStepAndServesTheRest) {
  for (const Kind at : {Kind::kAttempt, Kind::kPause, Kind::kBegin, Kind::kTransfer, Kind::kEnd, Kind::kActivate}) {
    SCOPED_TRACE(ToString(at));
    FleetRig rig({.engines = 3});
    rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
      if (slot.value() == 1 && command.kind == at) {
        rig.LoseAgent(1);
        return false;
      }
      return true;
    };
    const control::SyncAnswered answer = rig.Sync();
    rig.on_agent_command = nullptr;
    EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
    EXPECT_THAT(answer.outcome->engines[1].status.message(), HasSubstr("connection lost"));
    EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)));
    EXPECT_TRUE(rig.engine(2).serves(WeightVersion(1)));
    if (at != Kind::kActivate) {
      ASSERT_EQ(rig.commits().size(), 1U);
      ASSERT_EQ(rig.commits()[0].members.size(), 2U);
      EXPECT_EQ(rig.commits()[0].members[0].slot, SlotIndex(0));
      EXPECT_EQ(rig.commits()[0].members[1].slot, SlotIndex(2));
      EXPECT_EQ(rig.commits()[0].excluded.size(), 1U);
    }
    ExpectNextSyncWorks(rig, 3);
  }
}

// RX-COMMIT-09: the decision and every exclusion reach the caller.
TEST(Failure, TheCallerLearnsWhoServesWhatAndWhyTheOthersDoNot) {
  FleetRig rig({.engines = 3});
  rig.engine(1).SetFault(Operation::kUpdate, {.skip = 1});
  const control::SyncAnswered answer = rig.Sync();
  ASSERT_TRUE(answer.outcome.has_value());
  EXPECT_EQ(answer.outcome->version, WeightVersion(1));
  EXPECT_TRUE(answer.outcome->committed);
  ASSERT_EQ(answer.outcome->engines.size(), 3U);
  for (const sync::EngineOutcome& engine : answer.outcome->engines) {
    EXPECT_EQ(engine.serving, engine.slot != SlotIndex(1));
    EXPECT_EQ(engine.status.ok(), engine.serving);
    EXPECT_NE(engine.pause_sent, Instant{});
    EXPECT_EQ(engine.resume_answered != Instant{}, engine.serving);
  }
  EXPECT_THAT(answer.outcome->engines[1].status.message(), HasSubstr("update refused: fault in update"));
  EXPECT_EQ(answer.outcome->engines[1].residue.kind, ResidueKind::kMixed);
  ASSERT_EQ(rig.commits()[0].excluded.size(), 1U);
  EXPECT_EQ(rig.commits()[0].excluded[0].first, SlotIndex(1));
}

// RX-COMMIT-03, -07: excluded and alive means held; and only ACTIVATE wakes it.
TEST(Failure, AnExcludedEngineIsHeldBeforeTheVersionIsPublished) {
  FleetRig rig({});
  rig.engine(0).SetFault(Operation::kFlush, {.times = 1000});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(rig.agent(0).phase(), peer::AgentPhase::kHeld);
  EXPECT_FALSE(rig.engine(0).generates());
  EXPECT_THAT(answer.outcome->notes, ::testing::Contains(HasSubstr("engine 0: flush")));
  // A later sync that fails before its first update does not wake it either: it holds version 0, not what is published.
  rig.engine(0).ClearFaults();
  rig.engine(0).SetFault(Operation::kBegin, {});
  rig.engine(1).SetFault(Operation::kFlush, {.times = 1000});
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

TEST(Failure, WhatIsRefusedByEveryEngineFailsTheRefit) {
  for (const SessionFamily family : kFamilies) {
    FleetRig rig({.family = family});
    rig.engine(0).SetFault(Operation::kUpdate, {});
    rig.engine(1).SetFault(Operation::kUpdate, {});
    const control::SyncAnswered answer = rig.Sync();
    EXPECT_THAT(answer.status.message(), HasSubstr("update refused"));
    EXPECT_THAT(rig.commits(), IsEmpty());  // RX-COMMIT-05: members >= min_serving
    EXPECT_FALSE(rig.controller().latch().has_value());
    ExpectNextSyncWorks(rig, 2);
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

// RC-VER-04.
TEST(Failure, ZeroTensorsAreNoSuccess) {
  FleetRig rig({.engines = 1, .policies = 1});
  rig.SetLoads(0, 0);
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("zero tensors"));
  EXPECT_EQ(rig.controller().committed(), WeightVersion(0));
  EXPECT_FALSE(answer.outcome->opened);
}

// §II.4 step 3: SENT against RECEIVED, roots against roots.
TEST(Failure, UnequalCountsAreFoundBeforeTheDecision) {
  FleetRig rig({.profile = sync::kStrict, .engines = 1, .policies = 1});
  bool altered = false;
  rig.on_agent_reply = [&](SlotIndex, const sync::AgentReply& reply) {
    if (reply.totals.tensors > 0 && !std::exchange(altered, true)) {
      sync::AgentReply less = reply;
      less.totals.tensors -= 1;
      rig.Deliver(sync::SessionEvent{sync::AgentReplied{SlotIndex(0), less}});
      return false;
    }
    return true;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_EQ(answer.status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(rig.commits(), IsEmpty());
  EXPECT_TRUE(answer.outcome->latch);
  EXPECT_FALSE(rig.engine(0).generates());
  EXPECT_EQ(answer.outcome->engines[0].residue.kind, ResidueKind::kMixed);
}

TEST(Failure, PolicyWorkersWithDifferentWeightsAreNamed) {  // S34
  FleetRig rig({});
  rig.SetDigest(1, Digest{{6, 6}});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("policy rank 1 sent root"));
  EXPECT_FALSE(rig.engine(0).generates() || rig.engine(1).generates());
  rig.SetDigest(1, Digest{{5, 5}});
  ExpectNextSyncWorks(rig, 2);
}

TEST(Failure, PolicyWorkersWithDifferentTensorsAreNamedBeforeAnyEngineIsTouched) {
  FleetRig rig({});
  rig.SetManifest(
      1, std::make_shared<const weights::Manifest>(*weights::Manifest::Make({{"odd", weights::DType::kUint8, {1}}})));
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("policy rank 1"));
  EXPECT_THAT(rig.log(), IsEmpty());
  EXPECT_FALSE(rig.leased(0));
}

TEST(Failure, AManifestThatTheEngineDoesNotLoadTouchesNoEngine) {
  FleetRig rig({.engines = 1, .policies = 1});
  rig.SetManifest(
      0, std::make_shared<const weights::Manifest>(*weights::Manifest::Make({{"odd", weights::DType::kUint8, {1}}})));
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("engine 0"));
  EXPECT_THAT(rig.log(), IsEmpty());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(0)));
}

// RX-COMMIT-06, RC-SESS-13: no un-commit. In strict the call raises, nothing latches, and the next sync takes it in; in
// resilient the engine is asked once more, and then its life is over.
TEST(Failure, ARefusedActivationNeverUndoesTheVersion) {  // S41
  for (const sync::Profile& profile : kProfiles) {
    FleetRig rig({.profile = profile});
    rig.engine(0).SetFault(Operation::kResume, {.times = 2});
    const control::SyncAnswered answer = rig.Sync();
    EXPECT_EQ(answer.status.ok(), !IsStrict(profile));
    EXPECT_TRUE(answer.outcome->committed);
    EXPECT_EQ(rig.controller().committed(), WeightVersion(1));
    EXPECT_FALSE(rig.controller().latch().has_value());
    EXPECT_EQ(rig.controller().stale(), IsStrict(profile));
    EXPECT_EQ(answer.outcome->engines[0].residue.kind,
              IsStrict(profile) ? ResidueKind::kComplete : ResidueKind::kUnknown);
    EXPECT_EQ(rig.engine(0).count("resume"), IsStrict(profile) ? 1 : 2);
    EXPECT_FALSE(rig.engine(0).generates());
    EXPECT_TRUE(rig.engine(1).serves(WeightVersion(1)));
    ExpectNextSyncWorks(rig, 2);
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

// RX-COMMIT-06.
TEST(Failure, AnActivationThatIsRefusedOnceIsTriedOnceMore) {
  FleetRig rig({});
  rig.engine(0).SetFault(Operation::kLabel, {});
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.outcome->engines[0].status.ok());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)));
  EXPECT_EQ(rig.engine(0).count("label"), 2);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-JRNL-03, RX-COMMIT-10: the record may be there all the same. Nobody is activated, nobody resumed; the process
// ends.
TEST(Failure, ACommitThatIsNotRecordedPublishesNothingAndStopsTheController) {
  for (const sync::Profile& profile : kProfiles) {
    FleetRig rig({.profile = profile});
    rig.commit_status = Unavailable("disk full");
    const control::SyncAnswered answer = rig.Sync();
    EXPECT_EQ(answer.status.code(), StatusCode::kAborted);
    EXPECT_THAT(answer.status.message(), HasSubstr("IN_DOUBT"));
    EXPECT_THAT(answer.status.message(), HasSubstr("disk full"));
    EXPECT_THAT(answer.status.remedy(), HasSubstr("same request id"));
    EXPECT_FALSE(answer.outcome.has_value());
    EXPECT_FALSE(rig.engine(0).generates() || rig.engine(1).generates());
    EXPECT_EQ(rig.exit_code(), control::kExitJournalInDoubt);
    EXPECT_EQ(rig.agent(0).residue().kind, ResidueKind::kComplete);
  }
}

// ---- time and cancellation

TEST(Failure, WhoeverDoesNotAnswerIsNamedAtTheDeadline) {
  for (const sync::Profile& profile : kProfiles) {
    for (const Kind at : {Kind::kAttempt, Kind::kPause, Kind::kFlush, Kind::kBegin, Kind::kTransfer, Kind::kEnd}) {
      SCOPED_TRACE(StrCat(profile.name, " ", ToString(at)));
      FleetRig rig({.profile = profile});
      const Instant start = rig.now();
      rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
        return slot.value() != 1 || command.kind < at;
      };
      const control::SyncAnswered answer = rig.Sync();
      EXPECT_EQ(answer.status.code(), StatusCode::kDeadlineExceeded) << answer.status.ToString();
      EXPECT_THAT(answer.status.message(), HasSubstr(StrCat("engine 1 (", ToString(at), ")")));
      EXPECT_LE(rig.now(), start + std::chrono::seconds(60));
      EXPECT_THAT(rig.commits(), IsEmpty());
      EXPECT_EQ(rig.engine(0).generates(), at < Kind::kTransfer);
      EXPECT_THAT(rig.Violations(), IsEmpty());
    }
  }
}

TEST(Failure, AnActivationWithoutAnswerDoesNotHoldTheSyncBeyondItsDeadline) {
  FleetRig rig({});
  rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
    return slot.value() != 1 || command.kind != Kind::kActivate;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.outcome->engines[1].status.code(), StatusCode::kDeadlineExceeded);
}

// RX-COMMIT-10: no answer of the journal by the deadline of the sync is no failure of the sync.
TEST(Failure, ACommitInDoubtAtTheDeadlineSaysSo) {
  FleetRig rig({});
  rig.answer_commit = false;
  const Instant start = rig.now();
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("IN_DOUBT"));
  EXPECT_THAT(answer.status.remedy(), HasSubstr("same request id"));
  EXPECT_FALSE(answer.outcome.has_value());
  EXPECT_FALSE(rig.engine(0).generates());
  EXPECT_EQ(rig.exit_code(), control::kExitJournalInDoubt);
  EXPECT_LE(rig.now(), start + std::chrono::seconds(60));
}

// RX-XFER-13: the source is left to return by itself; sync() returns all the same.
TEST(Failure, ASourceThatDoesNotReturnIsReportedAndTheSyncEnds) {  // S29
  FleetRig rig({.profile = sync::kResilient});
  rig.block_send = true;
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_FALSE(answer.status.ok());
  EXPECT_THAT(answer.status.message() + " " + ::testing::PrintToString(answer.outcome->notes),
              HasSubstr("source blocked"));
}

// RC-TERM-06.
TEST(Failure, CancellationEndsAsTheRowOfItsStep) {
  for (const sync::Profile& profile : kProfiles) {
    for (const Kind at : {Kind::kAttempt, Kind::kPause, Kind::kFlush, Kind::kBegin, Kind::kTransfer, Kind::kEnd}) {
      SCOPED_TRACE(StrCat(profile.name, " ", ToString(at)));
      FleetRig rig({.profile = profile});
      bool cancelled = false;
      rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
        if (command.kind == at && !std::exchange(cancelled, true)) {
          rig.Deliver(sync::SessionEvent{sync::Cancelled{Status(StatusCode::kCancelled, "interrupted")}});
        }
        return true;
      };
      const control::SyncAnswered answer = rig.Sync();
      rig.on_agent_command = nullptr;
      EXPECT_EQ(answer.status.code(), StatusCode::kCancelled) << answer.status.ToString();
      EXPECT_EQ(answer.outcome->latch, IsStrict(profile) && at >= Kind::kTransfer);
      ExpectResidueTable(rig, 0);
      ExpectNextSyncWorks(rig, 2);
      EXPECT_THAT(rig.Violations(), IsEmpty());
    }
  }
}

TEST(Failure, CancellationAfterTheDecisionFinishesActivation) {
  FleetRig rig({});
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    if (command.kind == Kind::kActivate) {
      rig.Deliver(sync::SessionEvent{sync::Cancelled{Status(StatusCode::kCancelled, "interrupted")}});
    }
    return true;
  };
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)) && rig.engine(1).serves(WeightVersion(1)));
}

}  // namespace
}  // namespace refit::testing
