// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a session sends next, phase by phase.

#include <algorithm>
#include <span>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/sync/envelope.h"
#include "refit/sync/session.h"

namespace refit::sync {
namespace {

[[maybe_unused]] constexpr std::size_t kStepOfPause = 2;

}  // namespace

void Session::Advance(Instant now, SessionEffects& out) {
  if (failure_.has_value() && phase_ < SessionPhase::kActivating && !append_sent_) {
    phase_ = SessionPhase::kUndoing;
  }
  switch (phase_) {
    case SessionPhase::kLeasing: return AdvanceLeasing(now, out);
    case SessionPhase::kAttempting:
    case SessionPhase::kPreparing:
    case SessionPhase::kTransferring:
    case SessionPhase::kEnding: return AdvanceEnvelope(now, out);
    case SessionPhase::kDeciding: return AdvanceDeciding(now, out);
    case SessionPhase::kActivating: return AdvanceActivating(now, out);
    case SessionPhase::kUndoing: return AdvanceUndoing(now, out);
    case SessionPhase::kIdle:
    case SessionPhase::kFinished: return;
  }
}

void Session::AdvanceLeasing(Instant now, SessionEffects& out) {
  for (const Policy& policy : policies_) {
    if (!policy.leased) {
      return;
    }
  }
  for (const Policy& policy : policies_) {
    Status same =
        policy.manifest == nullptr
            ? InvalidArgument(StrCat("policy rank ", policy.member.rank, " answered the lease without a manifest"))
            : weights::CheckSameTensors(*policies_.front().manifest, *policy.manifest,
                                        StrCat("policy rank ", policy.member.rank));
    if (!same.ok()) {
      Fail(same, policy.member.rank.value());
      return Advance(now, out);
    }
  }
  phase_ = SessionPhase::kAttempting;
  AdvanceEnvelope(now, out);
}

// ---- prepare

void Session::AdvanceEnvelope(Instant now, SessionEffects& out) {
  const std::span<const AgentCommandKind> envelope = Envelope();
  while (DispatchSteps(now, out)) {
  }
  bool all_done = true;
  bool any_ending = false;
  bool any_left_attempt = false;
  for (const Engine& engine : engines_) {
    if (engine.outcome.status.ok()) {
      all_done = all_done && engine.step == envelope.size();
      any_left_attempt = any_left_attempt || engine.step > 0;
      any_ending = any_ending || (engine.step < envelope.size() && envelope[engine.step] == AgentCommandKind::kEnd);
    }
  }
  if (all_done && AllSent()) {
    phase_ = SessionPhase::kDeciding;
    return AdvanceDeciding(now, out);
  }
  if (transfer_started_) {
    phase_ = any_ending && AllSent() ? SessionPhase::kEnding : SessionPhase::kTransferring;
  } else if (any_left_attempt) {
    phase_ = SessionPhase::kPreparing;
  }
}

// Whether anything was sent. The fleet barrier of a profile waits for every engine at every step; the transfer does in
// any profile (nobody is sent a load before all are ready), and `end` waits for the root that the senders report.
bool Session::DispatchSteps(Instant now, SessionEffects& out) {
  const std::span<const AgentCommandKind> envelope = Envelope();
  std::size_t first_step = envelope.size();
  bool all_at_transfer = !Members().empty();
  for (const Engine& engine : engines_) {
    if (engine.outcome.status.ok()) {
      first_step = std::min(first_step, engine.step);
      all_at_transfer = all_at_transfer && engine.outstanding.empty() && engine.step < envelope.size() &&
                        envelope[engine.step] == AgentCommandKind::kTransfer;
    }
  }
  if (all_at_transfer) {
    DispatchTransfer(now, out);
    return true;
  }
  bool sent = false;
  for (Engine& engine : engines_) {
    if (!engine.outcome.status.ok() || !engine.outstanding.empty() || engine.step == envelope.size()) {
      continue;
    }
    const AgentCommandKind kind = envelope[engine.step];
    const bool barrier = options_.profile.step_barrier == StepBarrier::kFleet && engine.step != first_step;
    if (kind == AgentCommandKind::kTransfer || barrier || (kind == AgentCommandKind::kEnd && !AllSent())) {
      continue;
    }
    Send(engine, kind, now, out);
    sent = true;
  }
  return sent;
}

// Receivers first: a load must find somebody who waits for it. Policy workers without a receiver drain (RC-ROLE-01).
void Session::DispatchTransfer(Instant now, SessionEffects& out) {
  transfer_started_ = true;
  for (Engine& engine : engines_) {
    if (!engine.outcome.status.ok()) {
      continue;
    }
    Send(engine, AgentCommandKind::kTransfer, now, out);
    for (const StreamSource& stream : engine.streams) {
      const auto policy = std::find_if(policies_.begin(), policies_.end(),
                                       [&](const Policy& each) { return each.member.rank == stream.policy; });
      policy->receivers.push_back({engine.member.slot, engine.member.incarnation, stream.tp_ranks});
    }
  }
  for (Policy& policy : policies_) {
    Send(policy, PolicyCommandKind::kSend, now, out);
  }
}

bool Session::AllSent() const {
  return std::all_of(policies_.begin(), policies_.end(), [](const Policy& policy) { return policy.sent; });
}

// SENT against RECEIVED (contract §II.4 step 3): the senders agree on one root, and every engine got, over its ranks,
// exactly what the sources of its streams published.
Status Session::Verify() const {
  const Policy* first = nullptr;
  for (const Policy& policy : policies_) {
    if (!policy.delivered()) {
      continue;
    }
    if (first == nullptr) {
      first = &policy;
    }
    if (policy.digest != first->digest) {
      return DataLoss(StrCat("policy rank ", policy.member.rank, " sent root ", ToHex(policy.digest), ", policy rank ",
                             first->member.rank, " sent ", ToHex(first->digest)),
                      "the policy workers hold different weights; check that all have finished the same step");
    }
  }
  for (const Engine& engine : engines_) {
    if (!engine.outcome.status.ok()) {
      continue;
    }
    TransferTotals sent;
    for (const StreamSource& stream : engine.streams) {
      for (const Policy& policy : policies_) {
        if (policy.member.rank == stream.policy) {
          sent.tensors += policy.totals.tensors * stream.tp_ranks.size();
          sent.bytes += policy.totals.bytes * stream.tp_ranks.size();
        }
      }
    }
    const TransferTotals& received = engine.outcome.totals;
    if (received.tensors != sent.tensors || received.bytes != sent.bytes) {
      return DataLoss(StrCat("engine ", engine.member.slot, " received ", received.tensors, " tensors, ",
                             received.bytes, " bytes; sent to it were ", sent.tensors, " tensors, ", sent.bytes,
                             " bytes"));
    }
  }
  return OkStatus();
}

// ---- decide and settle

std::size_t Session::MembersNeeded() const {
  if (REFIT_MUTANT("RX-COMMIT-05/commit-without-members", false, true)) {
    return 0;
  }
  return options_.profile.min_serving == 0 ? engines_.size() : options_.profile.min_serving;
}

std::vector<SlotIndex> Session::Members() const {
  std::vector<SlotIndex> members;
  for (const Engine& engine : engines_) {
    if (engine.outcome.status.ok() && !engine.gone) {
      members.push_back(engine.member.slot);
    }
  }
  return members;
}

void Session::AdvanceDeciding(Instant now, SessionEffects& out) {
  if (append_sent_) {
    return;
  }
  if (Status verified = Verify(); !verified.ok()) {
    for (Engine& engine : engines_) {
      if (engine.outcome.residue.kind == ResidueKind::kComplete) {
        engine.outcome.residue = Residue::Mixed(options_.version, options_.attempt);  // complete means verified too
      }
    }
    Fail(verified, 0);
    return Advance(now, out);
  }
  // Whoever does not hold the version is out of traffic before it is published (RX-COMMIT-03): it confirms that it is
  // paused, or it dies.
  bool waiting = false;
  for (Engine& engine : engines_) {
    if (engine.outcome.status.ok() || engine.gone || engine.held || REFIT_MUTANT("RX-COMMIT-03/no-hold", false, true)) {
      continue;
    }
    if (engine.outstanding.empty()) {
      Send(engine, engine.hold_sent ? AgentCommandKind::kKill : AgentCommandKind::kHold, now, out);
      engine.hold_sent = true;
    }
    waiting = true;
  }
  if (waiting) {
    return;
  }
  AppendCommit commit{options_.version, digest_, Members(), {}};
  for (const Engine& engine : engines_) {
    if (!engine.outcome.status.ok()) {
      commit.excluded.emplace_back(engine.member.slot, engine.outcome.status.message());
    }
  }
  append_sent_ = true;
  out.emplace_back(std::move(commit));
}

void Session::AdvanceActivating(Instant now, SessionEffects& out) {
  bool waiting = false;
  for (Engine& engine : engines_) {
    if (engine.outcome.status.ok() && !engine.gone && !engine.outcome.serving && engine.outstanding.empty()) {
      Send(engine, AgentCommandKind::kActivate, now, out);
    }
    waiting = waiting || !engine.outstanding.empty();
  }
  if (waiting) {
    return;
  }
  Status status;
  for (const Engine& engine : engines_) {
    if (!engine.outcome.status.ok() && options_.profile.on_engine_loss == OnEngineLoss::kFail) {
      status = engine.outcome.status;  // raised, yet the version stays committed and nothing latches (RC-SESS-13)
      break;
    }
  }
  Finish(status, now, out);
}

// ---- undo

// Settled C1: an engine that still holds what is published goes back to it, and no other ever does.
bool Session::MayResumeOld(const Engine& engine) const {
  const bool latches = transfer_started_ && options_.profile.on_transfer_failure == OnTransferFailure::kLatch;
  const Residue& residue = engine.outcome.residue;
  // A refused pause may have half applied: it counts from when it was sent (RC-SESS-06).
  const bool paused = REFIT_MUTANT("RC-SESS-06/pause-outside-the-guard", engine.outcome.pause_sent != Instant{},
                                   engine.step > kStepOfPause);
  return paused && !engine.outcome.serving && !engine.resume_sent &&
         REFIT_MUTANT("RC-SESS-08/resume-after-transfer", !latches, true) &&
         REFIT_MUTANT("RX-COMMIT-11/resume-mixed", residue == Residue::Old(options_.committed), true);
}

void Session::AdvanceUndoing(Instant now, SessionEffects& out) {
  bool waiting = false;
  for (Engine& engine : engines_) {
    if (engine.gone) {
      continue;
    }
    if (!engine.outstanding.empty() && !engine.abort_sent && !engine.resume_sent) {
      engine.abort_sent = true;
      Send(engine, AgentCommandKind::kAbort, now, out);
    }
    if (engine.outstanding.empty() &&
        REFIT_MUTANT("RC-TEST-04/3-resume-only-on-success", MayResumeOld(engine), false)) {
      engine.resume_sent = true;
      Send(engine, AgentCommandKind::kResumeOld, now, out);
    }
    waiting = waiting || !engine.outstanding.empty();
  }
  for (Policy& policy : policies_) {
    if (!policy.gone && !policy.outstanding.empty() && !policy.abort_sent) {
      policy.abort_sent = true;
      Send(policy, PolicyCommandKind::kAbort, now, out);
    }
    waiting = waiting || !policy.outstanding.empty();
  }
  if (!waiting) {
    Finish(*failure_, now, out);
  }
}

// ---- sending

// A command that undoes gets half of what remains, so that its answer, even `not in time`, still arrives.
Instant Session::BudgetEnd(AgentCommandKind kind, Instant now) const {
  switch (kind) {
    case AgentCommandKind::kAttempt:
    case AgentCommandKind::kOnloadWeights:
    case AgentCommandKind::kPause:
    case AgentCommandKind::kFlush:
    case AgentCommandKind::kBegin: return prepare_deadline_;
    case AgentCommandKind::kTransfer:
    case AgentCommandKind::kEnd: return work_deadline_;
    case AgentCommandKind::kAbort:
    case AgentCommandKind::kResumeOld: return now + (options_.deadline - now) / 2;
    default: return options_.deadline;
  }
}

Stamp Session::MakeStamp(Incarnation incarnation, CommandSeq& next_seq) const {
  const CommandSeq seq = std::exchange(next_seq, next_seq.Next());
  return {options_.run, options_.attempt.term, seq, options_.attempt, options_.version, incarnation};
}

void Session::Send(Engine& engine, AgentCommandKind kind, Instant now, SessionEffects& out) {
  AgentCommand command;
  command.stamp = MakeStamp(engine.member.incarnation, engine.next_seq);
  command.kind = kind;
  command.budget = std::max(BudgetEnd(kind, now) - now, Duration(0));
  switch (kind) {
    case AgentCommandKind::kAttempt:
      command.manifest = policies_.front().manifest;
      command.streams = engine.streams;
      break;
    case AgentCommandKind::kPause:
      engine.outcome.pause_sent = now;
      engine.outcome.serving = false;
      break;
    case AgentCommandKind::kEnd:
      for (auto policy = policies_.rbegin(); policy != policies_.rend(); ++policy) {
        digest_ = policy->delivered() ? policy->digest : digest_;
      }
      command.digest = digest_;
      break;
    case AgentCommandKind::kActivate: command.digest = digest_; break;
    case AgentCommandKind::kResumeOld: command.stamp.version = options_.committed; break;
    default: break;
  }
  engine.outstanding.emplace(command.stamp.seq, kind);
  out.emplace_back(SendToAgent{engine.member.slot, std::move(command)});
}

void Session::Send(Policy& policy, PolicyCommandKind kind, Instant now, SessionEffects& out) {
  PolicyCommand command;
  command.stamp = MakeStamp(policy.member.incarnation, policy.next_seq);
  command.kind = kind;
  // A source that does not return is reported as such after the session gave up on it, not in place of the reason.
  const Instant latest = std::max(now, work_deadline_);
  command.budget = std::max(latest + (options_.deadline - latest) / 2 - now, Duration(0));
  if (kind == PolicyCommandKind::kLease) {
    command.source = options_.source;
  } else if (kind == PolicyCommandKind::kSend) {
    command.receivers = policy.receivers;
  }
  policy.outstanding.emplace(command.stamp.seq, kind);
  out.emplace_back(SendToPolicy{policy.member.rank, std::move(command)});
}

}  // namespace refit::sync
