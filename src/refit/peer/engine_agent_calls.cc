// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Engine calls, one at a time, and the transfer that posts them.

#include <algorithm>
#include <chrono>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/peer/engine_agent.h"

namespace refit::peer {

using sync::Answer;
using sync::AnswerKind;
using sync::Operation;
using sync::ReplyKind;
using sync::SessionFamily;
using Kind = sync::AgentCommandKind;

namespace {

// With less time left, a server that refuses and is slow for a moment would be taken for one that does not answer, and
// be killed (C2).
constexpr Duration kFlushAnswer = std::chrono::milliseconds(500);

Status Refused(Operation operation, const Answer& answer, std::string_view load = {}) {
  const std::string words = REFIT_MUTANT("RC-RPC-03/agent-drops-the-words", answer.message, std::string("see its log"));
  return FailedPrecondition(StrCat(ToString(operation), " refused: ", words, load));
}

}  // namespace

std::string EngineAgent::LoadText(Operation operation) const {
  return operation == Operation::kUpdate ? StrCat(" (load ", loads_posted_, ")") : "";
}

// No call may outlive the budget of its command.
Duration EngineAgent::Within(Duration deadline, Instant now) const {
  return std::min(deadline, running_->deadline - now);
}

void EngineAgent::NextCall(Instant now, EngineAgentEffects& out) {
  if (calls_.empty()) {
    return Complete(out);
  }
  if (!failure_.ok()) {
    return Finish(ReplyKind::kFailed, failure_, out);
  }
  const Operation operation = calls_.front();
  if (operation == Operation::kFlush && !flush_refusal_.empty() && running_->deadline - now < kFlushAnswer) {
    return RefuseFlush(out);
  }
  outstanding_ = Outstanding{next_call_++, operation};
  const WeightVersion label = operation == Operation::kLabel ? running_->command.stamp.version : WeightVersion(0);
  out.emplace_back(CallEngine{outstanding_->call, operation, label, Within(options_.call_deadline, now)});
}

void EngineAgent::OnAnswer(const EngineAnswered& event, Instant now, EngineAgentEffects& out) {
  if (!outstanding_.has_value() || outstanding_->call != event.call) {
    return;
  }
  const Operation operation = outstanding_->operation;
  const Answer& answer = event.answer;
  outstanding_.reset();
  if (REFIT_MUTANT("RC-RPC-06/no-answer-as-refusal", answer.kind == AnswerKind::kNone, false)) {
    // It may have run, or may still run under the next step (C2): nothing but the kill is safe.
    died_in_update_ = operation == Operation::kUpdate;
    return Kill(
        Unavailable(StrCat(ToString(operation), " got no complete answer: ", answer.message, LoadText(operation)),
                    "the engine is killed; start it again"),
        out);
  }
  if (operation == Operation::kUpdate) {
    return OnUpdateAnswer(answer, now, out);
  }
  if (!running_.has_value()) {  // the pause that a HOLD needed
    if (answer.kind == AnswerKind::kOk) {
      Record(operation);
    }
    return AnswerOvertakers(out);
  }
  const bool no_sessions = operation == Operation::kBegin && answer.kind == AnswerKind::kNotFound;
  if (answer.kind != AnswerKind::kOk && !no_sessions) {
    return OnRefused(operation, answer, now, out);
  }
  if (no_sessions) {
    facts_.has_sessions = false;
  } else {
    Record(operation);
  }
  calls_.pop_front();
  NextCall(now, out);
}

// What the engine's success taught.
void EngineAgent::Record(Operation operation) {
  switch (operation) {
    case Operation::kOnloadWeights: facts_.weights_released = false; break;
    case Operation::kOnloadKvCache: facts_.kv_cache_released = false; break;
    case Operation::kRelease:
      facts_.weights_released = true;
      facts_.kv_cache_released = true;
      break;
    case Operation::kPause: paused_ = true; break;
    case Operation::kResume: paused_ = false; break;
    case Operation::kBegin:
      facts_.begun = true;
      if (family_ == SessionFamily::kA) {
        family_ = SessionFamily::kB;  // sessions where none were expected: assume the family that survives least
      }
      break;
    case Operation::kEnd:
      facts_.begun = false;
      facts_.history_unknown = false;
      break;
    case Operation::kFlush:
    case Operation::kLabel:
    case Operation::kUpdate: break;
  }
}

// An explicit refusal, by family (table 11.2).
void EngineAgent::OnRefused(Operation operation, const Answer& answer, Instant now, EngineAgentEffects& out) {
  const Status refused = Refused(operation, answer);
  switch (operation) {
    case Operation::kFlush:
      flush_refusal_ = answer.message;
      flush_retry_at_ = now + std::max<Duration>(options_.flush_retry_interval, std::chrono::milliseconds(1));
      if (REFIT_MUTANT("RC-TEST-04/5-failed-flush-tolerated", false, true)) {
        return Complete(out);
      }
      if (flush_retry_at_ >= running_->deadline || !failure_.ok()) {
        RefuseFlush(out);
      }
      return;
    case Operation::kEnd:
      if (running_->command.kind == Kind::kBegin && !facts_.begun) {
        facts_.history_unknown = false;  // a probe of family C: no session was open, which is as good
        calls_.pop_front();
        return NextCall(now, out);
      }
      return Kill(refused, out);
    case Operation::kBegin:
      if (family_ == SessionFamily::kC && !begin_retried_) {
        begin_retried_ = true;
        calls_.assign({Operation::kEnd, Operation::kBegin});
        return NextCall(now, out);
      }
      if (REFIT_MUTANT("RC-SESS-05/refused-begin-lives", true, false)) {
        return Kill(refused, out);
      }
      return Finish(ReplyKind::kFailed, refused, out);
    default: return Finish(ReplyKind::kFailed, refused, out);
  }
}

void EngineAgent::RefuseFlush(EngineAgentEffects& out) {
  Status status = failure_;
  if (status.ok()) {
    status = FailedPrecondition(StrCat("flush still refused when its budget ended: ", flush_refusal_),
                                "requests are pending that do not end; abort them or give the sync more time");
  }
  Finish(ReplyKind::kFailed, std::move(status), out);
}

// ---- the transfer

void EngineAgent::PostNextUpdate(Instant now, EngineAgentEffects& out) {
  if (loads_waiting_ == 0 || outstanding_.has_value() || transfer_ != Transfer::kRunning) {
    return;
  }
  --loads_waiting_;
  ++loads_posted_;
  opened_ = true;
  stalled_at_ = kNever;  // the call has a deadline of its own
  residue_ = REFIT_MUTANT("RX-COMMIT-11/update-leaves-old", sync::Residue::Mixed(version_, attempt_), residue_);
  outstanding_ = Outstanding{next_call_++, Operation::kUpdate};
  std::optional<WeightVersion> label;
  if (options_.profile.version_label == sync::VersionLabel::kOnEveryUpdate) {
    label = REFIT_MUTANT("RC-VER-01/bump-per-call", version_, WeightVersion(version_.value() + outstanding_->call));
  }
  out.emplace_back(PostUpdate{outstanding_->call, attempt_, label, Within(options_.update_deadline, now)});
}

void EngineAgent::OnUpdateAnswer(const Answer& answer, Instant now, EngineAgentEffects& out) {
  if (answer.kind == AnswerKind::kOk) {
    Await(now);
    PostNextUpdate(now, out);
  } else if (transfer_ == Transfer::kRunning) {
    StopTransferBecause(Refused(Operation::kUpdate, answer, LoadText(Operation::kUpdate)), out);
  }
  SettleTransfer(now, out);
}

// Something has just come; the next thing is due within the stall deadline.
void EngineAgent::Await(Instant now) {
  stalled_at_ = REFIT_MUTANT("RX-TIME-02/no-stall", now + options_.stall_deadline, kNever);
}

// The host stops its receive loops and answers TransferFenced once nothing of the attempt can act any more.
void EngineAgent::StopTransferBecause(Status status, EngineAgentEffects& out) {
  failure_ = std::move(status);
  transfer_ = Transfer::kStopping;
  loads_waiting_ = 0;
  out.emplace_back(StopTransfer{transfer_attempt_});
}

// Goes on when the transfer and every update call of it have settled, one way or the other.
void EngineAgent::SettleTransfer(Instant now, EngineAgentEffects& out) {
  if (!running_.has_value()) {
    return AnswerOvertakers(out);
  }
  if (outstanding_.has_value()) {
    return;
  }
  if (running_->command.kind == Kind::kAttempt && transfer_ == Transfer::kNone) {
    return NextCall(now, out);
  }
  if (running_->command.kind != Kind::kTransfer) {
    return;
  }
  if (transfer_ == Transfer::kRunning && ended_.has_value() && loads_waiting_ == 0) {
    transfer_ = Transfer::kNone;
    if (REFIT_MUTANT("RC-VER-04/zero-tensors-is-success", ended_->tensors == 0 || !opened_, false)) {
      failure_ = FailedPrecondition("the transfer ended with zero tensors", "check what the policy's source yields");
    }
  }
  if (transfer_ != Transfer::kNone) {
    return;
  }
  if (!failure_.ok()) {
    return FailTransfer(out);
  }
  phase_ = AgentPhase::kEnding;
  Finish(ReplyKind::kDone, OkStatus(), out);
}

void EngineAgent::FailTransfer(EngineAgentEffects& out) {
  // Family B survives neither a second `begin` nor an `end` after half a set (table 11.2).
  const bool ends = opened_ && facts_.begun && family_ == SessionFamily::kB;
  if (REFIT_MUTANT("RC-SESS-14/c-row-on-b", ends, false)) {
    return Kill(failure_, out);
  }
  phase_ = AgentPhase::kPreparing;
  prepared_ = Prepared::kNothing;
  Finish(ReplyKind::kFailed, failure_, out);
}

}  // namespace refit::peer
