// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/sync/envelope.h"

#include <algorithm>

#include "refit/base/mutant.h"

namespace refit::sync {
namespace {

using Kind = AgentCommandKind;

constexpr Kind kEnvelope[] = {Kind::kBind,  Kind::kAttempt, Kind::kOnloadWeights, Kind::kPause,
                              Kind::kFlush, Kind::kBegin,   Kind::kTransfer,      Kind::kEnd};
// Planted: what reviewers of the original broke by hand (RC-TEST-04).
[[maybe_unused]] constexpr Kind kBeginBehindTransfer[] = {Kind::kBind,  Kind::kAttempt, Kind::kOnloadWeights,
                                                          Kind::kPause, Kind::kFlush,   Kind::kTransfer,
                                                          Kind::kBegin, Kind::kEnd};
[[maybe_unused]] constexpr Kind kFlushAfterTransfer[] = {Kind::kBind,     Kind::kAttempt, Kind::kOnloadWeights,
                                                         Kind::kPause,    Kind::kFlush,   Kind::kBegin,
                                                         Kind::kTransfer, Kind::kFlush,   Kind::kEnd};

void AddIf(bool needed, Operation operation, std::vector<Operation>& calls) {
  if (needed) {
    calls.push_back(operation);
  }
}

// The KV pool comes back before anybody generates, and only if this agent released it (RC-SESS-07, -15).
void AddWake(const EngineFacts& facts, std::vector<Operation>& calls) {
  const bool onload = REFIT_MUTANT("RC-SESS-15/onload-always", facts.kv_cache_released, true);
  if (REFIT_MUTANT("RC-SESS-07/resume-before-kv", false, true)) {
    calls.push_back(Operation::kResume);
    AddIf(onload, Operation::kOnloadKvCache, calls);
    return;
  }
  AddIf(REFIT_MUTANT("RC-TEST-04/6-kv-not-reacquired", onload, false), Operation::kOnloadKvCache, calls);
  calls.push_back(Operation::kResume);
}

}  // namespace

std::span<const AgentCommandKind> Envelope() {
  if (REFIT_MUTANT("RC-TEST-04/1-begin-behind-transfer", false, true)) {
    return kBeginBehindTransfer;
  }
  if (REFIT_MUTANT("RC-SESS-03/flush-after-transfer", false, true)) {
    return kFlushAfterTransfer;
  }
  return kEnvelope;
}

std::vector<Operation> CallsOf(AgentCommandKind kind, const EngineFacts& facts) {
  std::vector<Operation> calls;
  switch (kind) {
    case Kind::kOnloadWeights:
      AddIf(REFIT_MUTANT("RC-SESS-15/onload-always", facts.weights_released, true), Operation::kOnloadWeights, calls);
      break;
    case Kind::kPause: AddIf(REFIT_MUTANT("RC-TEST-04/4-no-pause", true, false), Operation::kPause, calls); break;
    case Kind::kFlush: calls.push_back(Operation::kFlush); break;
    case Kind::kBegin:
      if (facts.has_sessions) {
        // `begin` while a session is open kills family B and is refused by C: close what was left open first.
        AddIf(facts.begun || facts.history_unknown, Operation::kEnd, calls);
        AddIf(REFIT_MUTANT("RC-TEST-04/7-bare-transfer", true, false), Operation::kBegin, calls);
      }
      break;
    case Kind::kEnd:
      AddIf(REFIT_MUTANT("RC-SESS-04/end-on-family-a", facts.begun, true), Operation::kEnd, calls);
      if (REFIT_MUTANT("RX-COMMIT-01/end-resumes", false, true)) {
        AddWake(facts, calls);
      }
      break;
    case Kind::kActivate:
      // Before anything generates: samples are attributed by the label (RX-ONCE-04).
      AddIf(facts.version_label == VersionLabel::kAtActivation, Operation::kLabel, calls);
      AddWake(facts, calls);
      if (REFIT_MUTANT("RX-ONCE-04/label-after-resume", false, true)) {
        std::rotate(calls.begin(), calls.begin() + 1, calls.end());
      }
      break;
    case Kind::kResumeOld:
      AddIf(REFIT_MUTANT("RC-TEST-04/2-end-outside-its-guard", facts.begun, facts.has_sessions) &&
                REFIT_MUTANT("RC-SESS-04/begun-session-left-open", true, false),
            Operation::kEnd, calls);
      AddWake(facts, calls);
      break;
    case Kind::kRelease: calls.push_back(Operation::kRelease); break;
    case Kind::kBind:
    case Kind::kAttempt:
    case Kind::kTransfer:
    case Kind::kAbort:
    case Kind::kHold:
    case Kind::kKill: break;
  }
  return calls;
}

}  // namespace refit::sync
