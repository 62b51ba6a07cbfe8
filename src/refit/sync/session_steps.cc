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

[[maybe_unused]] constexpr std::size_t kStepOfPause = 3;
constexpr std::uint32_t kLinkFailures = 2;  // RX-SUM-02: two attempts on the same pair

}  // namespace

void Session::Advance(Instant now, SessionEffects& out) {
  if (failure_.has_value() && phase_ < SessionPhase::kActivating && !append_sent_) {
    phase_ = SessionPhase::kUndoing;
  } else if (attempt_failure_.has_value() && phase_ < SessionPhase::kDeciding) {
    phase_ = SessionPhase::kFencing;
  }
  switch (phase_) {
    case SessionPhase::kLeasing: return AdvanceLeasing(now, out);
    case SessionPhase::kAttempting:
    case SessionPhase::kPreparing:
    case SessionPhase::kTransferring:
    case SessionPhase::kEnding: return AdvanceEnvelope(now, out);
    case SessionPhase::kFencing: return AdvanceFencing(now, out);
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
  StartAttempt(now, out);
}

void Session::StartAttempt(Instant now, SessionEffects& out) {
  ++attempts_;
  prepare_deadline_ = now + std::max(options_.deadline - now, Duration(0)) / 2;
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
      any_left_attempt = any_left_attempt || engine.step > 1;
      any_ending = any_ending || (engine.step < envelope.size() && envelope[engine.step] == AgentCommandKind::kEnd);
    }
  }
  if (all_done &&
      (AllSent() || !in_transfer_)) {  // or whoever failed the attempt before is out: nothing is left to send
    phase_ = SessionPhase::kDeciding;
    return AdvanceDeciding(now, out);
  }
  if (in_transfer_) {
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
  bool all_at_transfer = false;
  for (const Engine& engine : engines_) {
    if (engine.outcome.status.ok() && engine.step < envelope.size()) {
      const bool at_transfer = engine.outstanding.empty() && envelope[engine.step] == AgentCommandKind::kTransfer;
      all_at_transfer = at_transfer && (all_at_transfer || first_step == envelope.size());
      first_step = std::min(first_step, engine.step);
    }
  }
  if (all_at_transfer) {
    DispatchTransfer(now, out);
    return true;
  }
  bool sent = false;
  for (Engine& engine : engines_) {
    const bool waits = !engine.outstanding.empty() || engine.not_before > now;
    if (!engine.outcome.status.ok() || waits || engine.step == envelope.size()) {
      continue;
    }
    const AgentCommandKind kind = envelope[engine.step];
    const bool barrier = options_.profile.step_barrier == StepBarrier::kFleet && engine.step != first_step;
    if (kind == AgentCommandKind::kTransfer || barrier || (kind == AgentCommandKind::kEnd && !AllSent())) {
      continue;
    }
    sent = true;
    if (kind == AgentCommandKind::kBind && TakeBoundLinks(engine)) {
      ++engine.step;  // nothing to bind: nothing goes over the wire (RC-BIND-04)
      continue;
    }
    Send(engine, kind, now, out);
  }
  return sent;
}

// Whether every stream of an engine is that of a link that is bound; then they carry its name from here on.
bool Session::TakeBoundLinks(Engine& engine) {
  if (REFIT_MUTANT("RC-BIND-04/bind-survivors", false, true)) {
    return false;
  }
  std::vector<StreamSource> bound;
  for (const StreamSource& stream : engine.streams) {
    const auto link = std::find_if(engine.member.links.begin(), engine.member.links.end(),
                                   [&stream](const StreamSource& each) { return each.SamePair(stream); });
    if (link == engine.member.links.end()) {
      return false;
    }
    bound.push_back(*link);
  }
  if (engine.member.links.size() != bound.size()) {
    return false;  // it has one too many
  }
  engine.streams = std::move(bound);
  return true;
}

// Receivers first: a load must find somebody who waits for it. Policy workers without a receiver drain (RC-ROLE-01),
// and so do those whose receivers hold the version already (RX-XFER-06).
void Session::DispatchTransfer(Instant now, SessionEffects& out) {
  transfer_started_ = true;
  in_transfer_ = true;
  for (Engine& engine : engines_) {
    if (!engine.outcome.status.ok() || engine.complete.has_value()) {
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

// Of the first policy worker that sent anything in this attempt.
std::optional<Digest> Session::SentRoot() const {
  for (const Policy& policy : policies_) {
    if (policy.delivered()) {
      return policy.digest;
    }
  }
  return std::nullopt;
}

// SENT against RECEIVED (contract §II.4 step 3): the senders agree on one root, the same one in every attempt
// (RX-ONCE-03), and every engine got, over its ranks, exactly what the sources of its streams published.
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
    if (engine.outcome.status.ok() && engine.complete == options_.attempt) {
      REFIT_RETURN_IF_ERROR(VerifyCounts(engine));
    }
  }
  return OkStatus();
}

Status Session::VerifyCounts(const Engine& engine) const {
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
    return DataLoss(StrCat("engine ", engine.member.slot, " received ", received.tensors, " tensors, ", received.bytes,
                           " bytes; sent to it were ", sent.tensors, " tensors, ", sent.bytes, " bytes"));
  }
  return OkStatus();
}

bool Session::Equivocates() const {
  return root_.has_value() && AllSent() &&
         std::any_of(policies_.begin(), policies_.end(), [this](const Policy& policy) {
           return policy.delivered() && REFIT_MUTANT("RX-ONCE-03/overwrite-the-digest", policy.digest != *root_, false);
         });
}

// ---- the next attempt

void Session::AdvanceFencing(Instant now, SessionEffects& out) {
  if (next_attempt_at_ != kNever) {
    if (now >= next_attempt_at_) {
      next_attempt_at_ = kNever;
      StartAttempt(now, out);
    }
    return;
  }
  if (AbortEverybody(now, out) && REFIT_MUTANT("RX-XFER-05/not-awaited", true, false)) {
    return;
  }
  if (AllSent() && !root_.has_value() && Verify().ok()) {
    root_ = SentRoot();
  }
  const bool alike = FailedAlike();
  for (Engine& engine : engines_) {
    if (engine.gone || !engine.outcome.status.ok()) {
      continue;
    }
    if (engine.complete == options_.attempt && !VerifyCounts(engine).ok()) {
      engine.complete.reset();
      engine.outcome.residue = Residue::Mixed(options_.version, options_.attempt);
    }
    if (engine.outcome.residue.kind == ResidueKind::kMixed) {
      MoveTo(engine, fleet::SlotState::kBound, out);
    }
    // Twice the same pair is that engine's, unless its sender fails others as well (RX-SUM-02, RX-QUAR-05).
    if (engine.link_failures >= kLinkFailures && !alike && !SenderFailsOthers(engine)) {
      Lose(engine, AgentCommandKind::kTransfer, attempt_failure_->WithContext("its link failed twice"), out);
    }
  }
  NextAttempt(now, out);
}

// Whether somebody has still to settle.
bool Session::AbortEverybody(Instant now, SessionEffects& out) {
  bool waiting = false;
  for (Engine& engine : engines_) {
    if (engine.gone) {
      continue;
    }
    if (!engine.outstanding.empty() && !engine.resume_sent && !std::exchange(engine.abort_sent, true)) {
      Send(engine, AgentCommandKind::kAbort, now, out);
    }
    waiting = waiting || !engine.outstanding.empty();
  }
  for (Policy& policy : policies_) {
    if (policy.gone) {
      continue;
    }
    if (!policy.outstanding.empty() && !std::exchange(policy.abort_sent, true)) {
      Send(policy, PolicyCommandKind::kAbort, now, out);
    }
    waiting = waiting || !policy.outstanding.empty();
  }
  return waiting;
}

bool Session::SenderFailsOthers(const Engine& engine) const {
  for (const StreamSource& stream : engine.streams) {
    for (const Engine& other : engines_) {
      const bool shares = std::any_of(other.streams.begin(), other.streams.end(),
                                      [&stream](const StreamSource& each) { return each.policy == stream.policy; });
      if (&other != &engine && shares && other.link_failures > 0) {
        return true;
      }
    }
  }
  return false;
}

void Session::NextAttempt(Instant now, SessionEffects& out) {
  const Status status = *std::exchange(attempt_failure_, std::nullopt);
  if (!failure_.has_value() && attempts_ >= options_.profile.max_attempts) {
    systemic_ = systemic_ || FailedAlike();
    Fail(systemic_ ? status.WithContext("SYSTEMIC: most engines failed alike in every attempt")
                   : status.WithContext(StrCat("in each of ", attempts_, " attempts")),
         0);
  }
  if (failure_.has_value()) {
    return Advance(now, out);
  }
  const AttemptId ended = options_.attempt;
  ++options_.attempt.n;
  out.emplace_back(AttemptAborted{ended, options_.attempt, status, opened_});
  in_transfer_ = false;
  for (Engine& engine : engines_) {
    engine.abort_sent = false;
    engine.failed_at.reset();
    engine.window_start = kNever;
    engine.slow_windows = 0;
    if (!engine.complete.has_value()) {
      engine.step = 0;  // links that are bound stay bound
      engine.outcome.totals = {};
    }
  }
  for (Policy& policy : policies_) {
    policy.abort_sent = false;
    policy.sent = REFIT_MUTANT("RX-XFER-06/restart-one-rank", false, policy.sent);
    policy.receivers.clear();
  }
  next_attempt_at_ = now + NextBackoff(attempts_ - 1);
}

// ---- decide and settle

std::size_t Session::MembersNeeded() const {
  if (REFIT_MUTANT("RX-COMMIT-05/commit-without-members", false, true)) {
    return 0;
  }
  if (options_.kind == SessionKind::kCatchUp) {
    return 1;
  }
  return options_.profile.min_serving == 0 ? engines_.size() : options_.profile.min_serving;
}

std::vector<Member> Session::Members() const {
  std::vector<Member> members;
  for (const Engine& engine : engines_) {
    if (REFIT_MUTANT("RX-MEM-02/keep-the-lost", engine.outcome.status.ok() && !engine.gone, true)) {
      members.push_back({engine.member.slot, engine.member.incarnation, engine.complete.value_or(options_.attempt)});
    }
  }
  return members;
}

void Session::AdvanceDeciding(Instant now, SessionEffects& out) {
  if (append_sent_) {
    return;
  }
  Status verified = Verify();
  if (verified.ok() && Equivocates()) {
    equivocated_ = true;
    verified = options_.kind == SessionKind::kCatchUp
                   ? FailedPrecondition(StrCat("the source holds version ", options_.version, " no more"),
                                        "the engine is taken in by the next sync")
                   : DataLoss("EQUIVOCATION: the source gave other weights than in the attempt before",
                              "the trainer must keep its weights until sync returns; start a new run");
  }
  if (!verified.ok()) {
    for (Engine& engine : engines_) {
      if (engine.outcome.residue.kind == ResidueKind::kComplete) {
        engine.outcome.residue = Residue::Mixed(options_.version, options_.attempt);  // complete means verified too
      }
    }
    Fail(verified, 0);
    return Advance(now, out);
  }
  if (KeepOutOfTraffic(now, out)) {
    return;
  }
  if (Members().size() < MembersNeeded()) {
    Fail(Unavailable(
             StrCat("INSUFFICIENT: ", Members().size(), " engines hold the version, ", MembersNeeded(), " are needed")),
         0);
    return Advance(now, out);
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

// Whoever does not hold the version is out of traffic before it is published (RX-COMMIT-03): it confirms that it is
// paused, or it dies, or the router was seen without it. Whether one still has to.
bool Session::KeepOutOfTraffic(Instant now, SessionEffects& out) {
  if (REFIT_MUTANT("RX-COMMIT-03/no-hold", false, true)) {
    return false;
  }
  LoseSuspects(out);
  bool waiting = !options_.outside.empty();
  for (Engine& engine : engines_) {
    if (engine.outcome.status.ok() || engine.out) {
      continue;
    }
    if (!engine.gone && engine.outstanding.empty() && !std::exchange(engine.hold_sent, true)) {
      Send(engine, AgentCommandKind::kHold, now, out);
    }
    waiting = true;
  }
  return waiting;
}

void Session::AdvanceActivating(Instant now, SessionEffects& out) {
  bool waiting = false;
  for (Engine& engine : engines_) {
    const bool waits = !engine.outstanding.empty() || engine.not_before > now;
    if (engine.outcome.status.ok() && !engine.gone && !engine.outcome.serving && !waits) {
      Send(engine, AgentCommandKind::kActivate, now, out);
    }
    waiting = waiting || waits || !engine.outstanding.empty();
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
  const Profile& profile = options_.profile;
  const bool latches = (transfer_started_ && profile.on_transfer_failure == OnTransferFailure::kLatch) ||
                       (bind_failed_ && profile.on_bind_failure == OnBindFailure::kLatch);
  const Residue& residue = engine.outcome.residue;
  // A refused pause may have half applied: it counts from when it was sent (RC-SESS-06).
  const bool paused = REFIT_MUTANT("RC-SESS-06/pause-outside-the-guard", engine.outcome.pause_sent != Instant{},
                                   engine.step > kStepOfPause);
  return paused && !engine.outcome.serving && !engine.resume_sent && !engine.out &&
         REFIT_MUTANT("RC-SESS-08/resume-after-transfer", !latches, true) &&
         REFIT_MUTANT("RX-COMMIT-11/resume-mixed",
                      options_.kind == SessionKind::kRefit &&
                          REFIT_MUTANT("RX-COMMIT-07/resume-whoever", residue.IsOld(options_.committed),
                                       residue.kind == ResidueKind::kOld),
                      true);
}

void Session::AdvanceUndoing(Instant now, SessionEffects& out) {
  LoseSuspects(out);
  bool waiting = AbortEverybody(now, out);
  for (Engine& engine : engines_) {
    if (!engine.gone && engine.outstanding.empty() &&
        REFIT_MUTANT("RC-TEST-04/3-resume-only-on-success", MayResumeOld(engine), false)) {
      engine.resume_sent = true;
      Send(engine, AgentCommandKind::kResumeOld, now, out);
      waiting = true;
    }
  }
  if (!waiting) {
    Finish(*failure_, now, out);
  }
}

// ---- sending

// A command that undoes gets half of what remains, so that its answer, even `not in time`, still arrives. Only a
// transfer waits for others; what else takes longer than stall_deadline has stalled (RX-TIME-02).
Instant Session::BudgetEnd(AgentCommandKind kind, Instant now) const {
  const Instant stalled = REFIT_MUTANT("RX-TIME-02/wall-timeout-only", now + options_.stall_deadline, kNever);
  switch (kind) {
    case AgentCommandKind::kBind:
    case AgentCommandKind::kAttempt:
    case AgentCommandKind::kOnloadWeights:
    case AgentCommandKind::kPause:
    case AgentCommandKind::kFlush:
    case AgentCommandKind::kBegin: return std::min(prepare_deadline_, stalled);
    case AgentCommandKind::kTransfer: return work_deadline_;
    case AgentCommandKind::kEnd: return std::min(work_deadline_, stalled);
    case AgentCommandKind::kAbort:
    case AgentCommandKind::kResumeOld: return std::min(now + (options_.deadline - now) / 2, stalled);
    default: return std::min(options_.deadline, stalled);
  }
}

Stamp Session::MakeStamp(Incarnation incarnation, AttemptId attempt, CommandSeq& next_seq) const {
  const CommandSeq seq = std::exchange(next_seq, next_seq.Next());
  return {options_.run, attempt.term, seq, attempt, options_.version, incarnation};
}

void Session::MoveTo(const Engine& engine, fleet::SlotState state, SessionEffects& out) const {
  out.emplace_back(SlotMoved{engine.member.slot, state});
}

void Session::Send(Engine& engine, AgentCommandKind kind, Instant now, SessionEffects& out) {
  AgentCommand command;
  command.stamp = MakeStamp(engine.member.incarnation, engine.complete.value_or(options_.attempt), engine.next_seq);
  command.kind = kind;
  command.budget = std::max(BudgetEnd(kind, now) - now, Duration(0));
  switch (kind) {
    case AgentCommandKind::kBind: command.streams = engine.streams; break;
    case AgentCommandKind::kAttempt:
      command.manifest = policies_.front().manifest;
      command.streams = engine.streams;
      break;
    case AgentCommandKind::kPause:
      engine.outcome.pause_sent = engine.outcome.pause_sent == Instant{} ? now : engine.outcome.pause_sent;
      if (std::exchange(engine.outcome.serving, false)) {
        MoveTo(engine, fleet::SlotState::kPaused, out);
      }
      break;
    case AgentCommandKind::kEnd:
      digest_ = SentRoot().value_or(digest_);
      command.digest = digest_;
      break;
    case AgentCommandKind::kActivate: command.digest = digest_; break;
    case AgentCommandKind::kResumeOld: command.stamp.version = options_.committed; break;
    default: break;
  }
  engine.outstanding.emplace(command.stamp.seq, Sent<AgentCommandKind>{kind, command.stamp.attempt});
  out.emplace_back(SendToAgent{engine.member.slot, std::move(command)});
}

void Session::Send(Policy& policy, PolicyCommandKind kind, Instant now, SessionEffects& out) {
  PolicyCommand command;
  command.stamp = MakeStamp(policy.member.incarnation, options_.attempt, policy.next_seq);
  command.kind = kind;
  // A source that does not return is reported as such after the session gave up on it, not in place of the reason.
  const Instant latest = std::max(now, work_deadline_);
  command.budget = std::max(latest + (options_.deadline - latest) / 2 - now, Duration(0));
  if (kind != PolicyCommandKind::kSend && kind != PolicyCommandKind::kAbort) {
    command.budget = std::min(command.budget, options_.stall_deadline);
  }
  if (kind == PolicyCommandKind::kLease) {
    command.source = options_.source;
  } else if (kind == PolicyCommandKind::kSend) {
    command.receivers = policy.receivers;
  }
  policy.outstanding.emplace(command.stamp.seq, Sent<PolicyCommandKind>{kind, command.stamp.attempt});
  out.emplace_back(SendToPolicy{policy.member.rank, std::move(command)});
}

}  // namespace refit::sync
