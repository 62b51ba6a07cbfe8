// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Each engine call × {refused, no answer} × family × profile, and each loss: the rows of contract §11.1 and the residue
// table of §II.6. After every row the next sync works, or is refused without a single call.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refit/base/str.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using sync::AnswerKind;
using sync::Operation;
using sync::ResidueKind;
using sync::SessionFamily;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Fault = EngineDouble::Fault;
using Kind = sync::AgentCommandKind;

constexpr SessionFamily kFamilies[] = {SessionFamily::kA, SessionFamily::kB, SessionFamily::kC};
constexpr sync::Profile kProfiles[] = {sync::kStrict, sync::kResilient};
constexpr Operation kOperations[] = {Operation::kOnloadWeights, Operation::kPause,         Operation::kFlush,
                                     Operation::kBegin,         Operation::kUpdate,        Operation::kEnd,
                                     Operation::kLabel,         Operation::kOnloadKvCache, Operation::kResume};

bool IsStrict(const sync::Profile& profile) { return profile.on_engine_loss == sync::OnEngineLoss::kFail; }
bool BeforeTransfer(Operation operation) { return operation < Operation::kUpdate; }
bool AfterCommit(Operation operation) { return operation > Operation::kEnd; }

// The next sync: refused without a call where latched; else, with the dead replaced, everybody serves a new version.
void ExpectNextSyncWorks(FleetRig& rig, std::uint32_t engines) {
  const std::size_t calls = rig.log().size();
  if (rig.controller().latch().has_value()) {
    const control::SyncAnswered refused = rig.Sync();
    EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.status.message(), HasSubstr("terminal"));
    EXPECT_FALSE(refused.outcome.has_value());
    EXPECT_EQ(rig.log().size(), calls);  // RC-TERM-02
    return;
  }
  for (std::uint32_t slot = 0; slot < engines; ++slot) {
    rig.engine(slot).ClearFaults();
    if (rig.engine(slot).dead()) {
      rig.Launch(slot);
    }
  }
  rig.RunUntilQuiet();
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  for (std::uint32_t slot = 0; slot < engines; ++slot) {
    EXPECT_TRUE(rig.engine(slot).serves(answer.outcome->version)) << "engine " << slot;
  }
}

// RX-COMMIT-11: what the agent reports is what the engine holds, and who may generate.
void ExpectResidueTable(FleetRig& rig, std::uint32_t slot) {
  const sync::Residue& residue = rig.agent(slot).residue();
  const EngineDouble& engine = rig.engine(slot);
  switch (residue.kind) {
    case ResidueKind::kOld:
      if (engine.generates()) {
        EXPECT_TRUE(engine.serves(residue.version)) << "engine " << slot;
        if (residue.version != WeightVersion(0)) {  // its launch weights, never paused
          EXPECT_EQ(residue.version, rig.controller().committed());
        }
      }
      break;
    case ResidueKind::kMixed:
    case ResidueKind::kComplete:
      EXPECT_FALSE(engine.generates()) << "engine " << slot << " holds " << ToString(residue);
      break;
    case ResidueKind::kUnknown: EXPECT_TRUE(engine.dead()) << "engine " << slot; break;
  }
}

struct Row {
  sync::Profile profile;
  SessionFamily family;
  Operation operation;
  Fault fault;
};

void RunRow(const Row& row) {
  FleetRig rig({.profile = row.profile, .family = row.family});
  rig.Release(0);
  rig.Release(1);
  ASSERT_TRUE(rig.Sync().status.ok());  // off the degenerate point: a first version is served (RC-TEST-06)
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    rig.Launch(slot);
    rig.Release(slot);
  }
  ASSERT_TRUE(rig.Sync().status.ok());
  if (row.operation == Operation::kOnloadWeights || row.operation == Operation::kOnloadKvCache) {
    rig.Launch(0);
    rig.Release(0);
  }
  const int before = rig.engine(0).count(ToString(row.operation));
  rig.engine(0).SetFault(row.operation, row.fault);
  const control::SyncAnswered answer = rig.Sync();
  ASSERT_TRUE(answer.outcome.has_value());
  const sync::Outcome& outcome = *answer.outcome;
  const bool hit = rig.engine(0).count(ToString(row.operation)) > before;
  const bool flush_comes_through = row.operation == Operation::kFlush && row.fault.times == 1;
  const bool begin_comes_through =
      row.operation == Operation::kBegin && row.family == SessionFamily::kC && row.fault.times == 1;
  const bool none = row.fault.kind == AnswerKind::kNone;
  const bool failed = hit && (none || (!flush_comes_through && !begin_comes_through));
  const bool started = !BeforeTransfer(row.operation);

  EXPECT_THAT(rig.Violations(), IsEmpty());
  EXPECT_EQ(answer.status.ok(), !failed || !IsStrict(row.profile)) << answer.status.ToString();
  EXPECT_EQ(outcome.engines[0].status.ok(), !failed);
  EXPECT_EQ(outcome.committed, !failed || !IsStrict(row.profile) || AfterCommit(row.operation));
  EXPECT_EQ(rig.controller().latch().has_value(), failed && IsStrict(row.profile) && started && !outcome.committed);
  EXPECT_EQ(rig.controller().stale(), !answer.status.ok());
  if (failed) {
    const bool killed = none || row.operation == Operation::kBegin || row.operation == Operation::kEnd ||
                        (row.operation == Operation::kUpdate && row.family == SessionFamily::kB);
    // Excluded with a pause refused, it cannot be confirmed paused, so it dies before the version is published.
    const bool unheld = row.operation == Operation::kOnloadWeights || row.operation == Operation::kPause;
    const bool killed_to_exclude = !IsStrict(row.profile) && unheld;
    EXPECT_EQ(rig.engine(0).dead(), killed || killed_to_exclude);
    EXPECT_EQ(outcome.engines[0].killed, killed || killed_to_exclude);
    EXPECT_THAT(outcome.engines[0].status.message(), HasSubstr("engine 0: "));
    EXPECT_FALSE(outcome.engines[0].serving && outcome.committed);
    // RC-SESS-07: before the transfer, whoever lives serves the old version again, in strict; after it, nobody does.
    if (IsStrict(row.profile) && BeforeTransfer(row.operation)) {
      EXPECT_TRUE(rig.engine(1).generates());
      EXPECT_EQ(rig.engine(0).generates(), !killed);
    } else if (IsStrict(row.profile) && !AfterCommit(row.operation)) {
      EXPECT_FALSE(rig.engine(1).generates());
    } else {
      EXPECT_TRUE(rig.engine(1).serves(outcome.version));
    }
  }
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    ExpectResidueTable(rig, slot);
  }
  ExpectNextSyncWorks(rig, 2);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

class FailureMatrix : public ::testing::TestWithParam<Operation> {};
std::string NameOf(const ::testing::TestParamInfo<Operation>& parameter) {
  constexpr const char* kNames[] = {"OnloadWeights", "Pause", "Flush",         "Begin", "Update",
                                    "End",           "Label", "OnloadKvCache", "Resume"};
  return kNames[static_cast<std::size_t>(parameter.param)];
}
INSTANTIATE_TEST_SUITE_P(Of, FailureMatrix, ::testing::ValuesIn(kOperations), NameOf);

void RunRows(Operation operation, const std::vector<Fault>& faults) {
  for (const sync::Profile& profile : kProfiles) {
    for (const SessionFamily family : kFamilies) {
      for (const Fault& fault : faults) {
        SCOPED_TRACE(StrCat(profile.name, ", family ", ToString(family), ", ", ToString(operation), " after ",
                            fault.skip, ", times ", fault.times, fault.runs ? ", runs" : ""));
        RunRow({profile, family, operation, fault});
      }
    }
  }
}

// RC-SESS-04, -06, -07, -08, -13, -14.
TEST_P(FailureMatrix, ARefusalLeavesWhatItsRowSays) {
  RunRows(GetParam(), {{}, {.times = 1000}});
  if (GetParam() == Operation::kUpdate) {
    RunRows(GetParam(), {{.skip = 1}, {.skip = 2}});
  }
}

// RC-RPC-06: no further call but kill, whether the call ran or not. The double notes any.
TEST_P(FailureMatrix, ACallWithoutAnAnswerEndsTheIncarnation) {
  RunRows(GetParam(), {{.kind = AnswerKind::kNone}, {.kind = AnswerKind::kNone, .runs = true}});
  if (GetParam() == Operation::kUpdate) {
    RunRows(GetParam(), {{.kind = AnswerKind::kNone, .skip = 1, .runs = true}});
  }
}

// ---- rows that need their own words

// RC-SESS-06: a pause that is refused may have half applied.
TEST(Failure, ARefusedPauseIsResumedOnce) {
  FleetRig rig({.profile = sync::kStrict});
  rig.engine(1).SetFault(Operation::kPause, {.runs = true});
  EXPECT_FALSE(rig.Sync().status.ok());
  EXPECT_EQ(rig.engine(1).count("resume"), 1);
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(0)));
}

// RC-SESS-05: begun is tracked per engine.
TEST(Failure, BeginRefusedOnOneEndsTheOthersSessionOnly) {
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
TEST(Failure, WithoutItsKvPoolAnEngineIsNotResumedAndTheFirstErrorStands) {
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
      EXPECT_EQ(rig.commits()[0].members, (std::vector{SlotIndex(0), SlotIndex(2)}));
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
  rig.on_agent_reply = [&](SlotIndex, const sync::AgentReply& reply) {
    if (reply.totals.tensors > 0) {
      sync::AgentReply less = reply;
      less.totals.tensors -= 1;
      rig.on_agent_reply = nullptr;
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

TEST(Failure, PolicyWorkersWithDifferentWeightsAreNamed) {
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

// RX-COMMIT-06: no un-commit.
TEST(Failure, ARefusedActivationNeverUndoesTheVersion) {
  for (const sync::Profile& profile : kProfiles) {
    FleetRig rig({.profile = profile});
    rig.engine(0).SetFault(Operation::kResume, {});
    const control::SyncAnswered answer = rig.Sync();
    EXPECT_EQ(answer.status.ok(), !IsStrict(profile));
    EXPECT_TRUE(answer.outcome->committed);
    EXPECT_EQ(rig.controller().committed(), WeightVersion(1));
    EXPECT_FALSE(rig.controller().latch().has_value());  // RC-SESS-13
    EXPECT_EQ(answer.outcome->engines[0].residue.kind, ResidueKind::kComplete);
    EXPECT_FALSE(rig.engine(0).generates());
    EXPECT_TRUE(rig.engine(1).serves(WeightVersion(1)));
    ExpectNextSyncWorks(rig, 2);
  }
}

TEST(Failure, ACommitThatIsNotRecordedPublishesNothing) {
  FleetRig rig({.profile = sync::kStrict});
  rig.commit_status = Unavailable("disk full");
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("disk full"));
  EXPECT_FALSE(answer.outcome->committed);
  EXPECT_FALSE(answer.outcome->latch);
  EXPECT_FALSE(rig.engine(0).generates());
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

TEST(Failure, ACommitInDoubtAtTheDeadlineSaysSo) {
  FleetRig rig({});
  rig.answer_commit = false;
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_THAT(answer.status.message(), HasSubstr("in doubt"));
  EXPECT_FALSE(rig.engine(0).generates());
}

// RX-XFER-13: the source is left to return by itself; sync() returns all the same.
TEST(Failure, ASourceThatDoesNotReturnIsReportedAndTheSyncEnds) {
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
