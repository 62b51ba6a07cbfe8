// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Each engine call × {refused, no answer} × family × profile, and each loss: the rows of contract §11.1 and the residue
// table of §II.6. After every row the next sync works, or is refused without a single call.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refit/base/str.h"
#include "tests/support/fleet_expect.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using sync::AnswerKind;
using sync::Operation;
using sync::SessionFamily;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Fault = EngineDouble::Fault;

constexpr Operation kOperations[] = {Operation::kOnloadWeights, Operation::kPause,         Operation::kFlush,
                                     Operation::kBegin,         Operation::kUpdate,        Operation::kEnd,
                                     Operation::kLabel,         Operation::kOnloadKvCache, Operation::kResume};

bool BeforeTransfer(Operation operation) { return operation < Operation::kUpdate; }
bool AfterCommit(Operation operation) { return operation > Operation::kEnd; }

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
  const bool strict = IsStrict(row.profile);
  const bool none = row.fault.kind == AnswerKind::kNone;
  // A flush is asked for again, family C's `begin` once (11.2), and an activation in resilient (RX-COMMIT-06).
  const bool again = row.operation == Operation::kFlush ||
                     (row.operation == Operation::kBegin && row.family == SessionFamily::kC) ||
                     (AfterCommit(row.operation) && !strict);
  const bool failed = hit && (none || !again || row.fault.times > 1);
  const bool started = !BeforeTransfer(row.operation);

  EXPECT_THAT(rig.Violations(), IsEmpty());
  EXPECT_EQ(answer.status.ok(), !failed || !strict) << answer.status.ToString();
  EXPECT_EQ(outcome.engines[0].status.ok(), !failed);
  EXPECT_EQ(outcome.committed, !failed || !strict || AfterCommit(row.operation));
  EXPECT_EQ(rig.controller().latch().has_value(), failed && strict && started && !outcome.committed);
  EXPECT_EQ(rig.controller().stale(), !answer.status.ok());
  if (failed) {
    // An engine that will not pause cannot be kept out of traffic but by its death (RX-COMMIT-03).
    const bool unheld = !strict && row.operation == Operation::kPause && row.fault.times > 1;
    const bool killed = none || unheld || row.operation == Operation::kBegin || row.operation == Operation::kEnd ||
                        (row.operation == Operation::kUpdate && row.family == SessionFamily::kB) ||
                        (!strict && AfterCommit(row.operation));
    EXPECT_EQ(rig.engine(0).dead(), killed);
    EXPECT_EQ(outcome.engines[0].killed, killed);
    EXPECT_THAT(outcome.engines[0].status.message(), HasSubstr("engine 0: "));
    EXPECT_FALSE(outcome.engines[0].serving && outcome.committed);
    // RC-SESS-07: before the transfer, whoever lives serves the old version again, in strict; after it, nobody does.
    if (strict && BeforeTransfer(row.operation)) {
      EXPECT_TRUE(rig.engine(1).generates());
      EXPECT_EQ(rig.engine(0).generates(), !killed);
    } else if (strict && !AfterCommit(row.operation)) {
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
TEST_P(FailureMatrix, ARefusalLeavesWhatItsRowSays) {  // S42
  RunRows(GetParam(), {{}, {.times = 1000}});
  if (GetParam() == Operation::kUpdate) {
    RunRows(GetParam(), {{.skip = 1}, {.skip = 2}});
  }
}

// RC-RPC-06: no further call but kill, whether the call ran or not. The double notes any.
TEST_P(FailureMatrix, ACallWithoutAnAnswerEndsTheIncarnation) {  // S42
  RunRows(GetParam(), {{.kind = AnswerKind::kNone}, {.kind = AnswerKind::kNone, .runs = true}});
  if (GetParam() == Operation::kUpdate) {
    RunRows(GetParam(), {{.kind = AnswerKind::kNone, .skip = 1, .runs = true}});
  }
}

}  // namespace
}  // namespace refit::testing
