// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The words that people read in errors, logs and status.

#include <string>
#include <string_view>

#include "refit/base/str.h"
#include "refit/sync/command.h"
#include "refit/sync/engine_call.h"
#include "refit/sync/residue.h"
#include "refit/sync/session.h"

namespace refit::sync {

std::string_view ToString(AgentCommandKind kind) {
  switch (kind) {
    case AgentCommandKind::kBind: return "bind";
    case AgentCommandKind::kAttempt: return "attempt";
    case AgentCommandKind::kOnloadWeights: return "onload(weights)";
    case AgentCommandKind::kPause: return "pause";
    case AgentCommandKind::kFlush: return "flush";
    case AgentCommandKind::kBegin: return "begin";
    case AgentCommandKind::kTransfer: return "transfer";
    case AgentCommandKind::kEnd: return "end";
    case AgentCommandKind::kActivate: return "activate";
    case AgentCommandKind::kResumeOld: return "resume-old";
    case AgentCommandKind::kRelease: return "release";
    case AgentCommandKind::kAbort: return "abort";
    case AgentCommandKind::kHold: return "hold";
    case AgentCommandKind::kKill: return "kill";
  }
  return "?";
}

std::string_view ToString(PolicyCommandKind kind) {
  switch (kind) {
    case PolicyCommandKind::kLease: return "lease";
    case PolicyCommandKind::kSend: return "send";
    case PolicyCommandKind::kAbort: return "abort";
    case PolicyCommandKind::kRelease: return "release";
  }
  return "?";
}

std::string_view ToString(Operation operation) {
  switch (operation) {
    case Operation::kOnloadWeights: return "onload(weights)";
    case Operation::kPause: return "pause";
    case Operation::kFlush: return "flush";
    case Operation::kBegin: return "begin";
    case Operation::kUpdate: return "update";
    case Operation::kEnd: return "end";
    case Operation::kLabel: return "label";
    case Operation::kOnloadKvCache: return "onload(kv_cache)";
    case Operation::kResume: return "resume";
    case Operation::kRelease: return "release";
  }
  return "?";
}

std::string_view ToString(SessionFamily family) {
  switch (family) {
    case SessionFamily::kA: return "a";
    case SessionFamily::kB: return "b";
    case SessionFamily::kC: return "c";
  }
  return "?";
}

std::string_view ToString(PauseMode mode) {
  switch (mode) {
    case PauseMode::kAbort: return "abort";
    case PauseMode::kRetract: return "retract";
  }
  return "?";
}

std::string_view ToString(ResidueKind kind) {
  switch (kind) {
    case ResidueKind::kOld: return "old";
    case ResidueKind::kMixed: return "mixed";
    case ResidueKind::kComplete: return "complete";
    case ResidueKind::kUnknown: return "unknown";
  }
  return "?";
}

std::string ToString(const Residue& residue) {
  if (residue.kind == ResidueKind::kUnknown) {
    return "unknown";
  }
  return StrCat(ToString(residue.kind), "(version ", residue.version, ")");
}

std::string_view ToString(SessionPhase phase) {
  switch (phase) {
    case SessionPhase::kIdle: return "idle";
    case SessionPhase::kLeasing: return "leasing";
    case SessionPhase::kAttempting: return "attempting";
    case SessionPhase::kPreparing: return "preparing";
    case SessionPhase::kTransferring: return "transferring";
    case SessionPhase::kEnding: return "ending";
    case SessionPhase::kFencing: return "fencing";
    case SessionPhase::kDeciding: return "deciding";
    case SessionPhase::kActivating: return "activating";
    case SessionPhase::kUndoing: return "undoing";
    case SessionPhase::kFinished: return "finished";
  }
  return "?";
}

}  // namespace refit::sync
