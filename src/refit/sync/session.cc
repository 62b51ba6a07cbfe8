// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What events mean: answers, losses, failures, the end. What is sent next is in session_steps.cc.

#include "refit/sync/session.h"

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/sync/envelope.h"

namespace refit::sync {
namespace {

// Where the failures of one step are ordered: policy workers before engines, then by number (RC-RPC-05).
constexpr std::uint32_t kNobody = 0;
constexpr std::uint32_t kFirstPolicy = 1;
constexpr std::uint32_t kFirstEngine = 1U << 16;

}  // namespace

Session::Session(SessionOptions options) : options_(std::move(options)) {
  for (const EngineMember& member : options_.engines) {
    Engine engine;
    engine.member = member;
    const auto seq = options_.next_seq.find(member.slot);
    engine.next_seq = seq == options_.next_seq.end() ? CommandSeq(1) : seq->second;
    engine.outcome.slot = member.slot;
    engine.outcome.incarnation = member.incarnation;
    engine.outcome.residue = member.residue;
    engine.outcome.serving = member.serving;
    engines_.push_back(std::move(engine));
  }
  for (const PolicyMember& member : options_.policies) {
    Policy policy;
    policy.member = member;
    const auto seq = options_.next_policy_seq.find(member.rank);
    policy.next_seq = seq == options_.next_policy_seq.end() ? CommandSeq(1) : seq->second;
    policies_.push_back(std::move(policy));
  }
  std::sort(engines_.begin(), engines_.end(),
            [](const auto& a, const auto& b) { return a.member.slot < b.member.slot; });
  std::sort(policies_.begin(), policies_.end(),
            [](const auto& a, const auto& b) { return a.member.rank < b.member.rank; });

  const std::map<SlotIndex, std::vector<StreamSource>> streams = MapStreams(options_.policies, options_.engines);
  for (Engine& engine : engines_) {
    const auto found = streams.find(engine.member.slot);
    engine.streams = found == streams.end() ? std::vector<StreamSource>() : found->second;
  }
}

void Session::Handle(const SessionEvent& event, Instant now, SessionEffects& out) {
  if (phase_ == SessionPhase::kFinished) {
    return;
  }
  if (std::holds_alternative<Started>(event)) {
    return OnStarted(now, out);
  }
  if (const auto* agent = std::get_if<AgentReplied>(&event)) {
    OnAgentReplied(*agent, now);
  } else if (const auto* agent_lost = std::get_if<AgentLost>(&event)) {
    OnAgentLost(*agent_lost);
  } else if (const auto* policy = std::get_if<PolicyReplied>(&event)) {
    OnPolicyReplied(*policy);
  } else if (const auto* policy_lost = std::get_if<PolicyLost>(&event)) {
    OnPolicyLost(*policy_lost);
  } else if (const auto* appended = std::get_if<CommitAppended>(&event)) {
    if (phase_ == SessionPhase::kDeciding && append_sent_) {
      if (!appended->status.ok()) {
        return Finish(appended->status.WithContext("the commit was not recorded"), now, out);
      }
      committed_ = true;
      phase_ = SessionPhase::kActivating;
    }
  } else if (const auto* cancelled = std::get_if<Cancelled>(&event)) {
    if (!append_sent_) {  // after the decision, activation is finished first (contract §II.16)
      Fail(cancelled->status, kNobody);
    }
  }
  Advance(now, out);
}

void Session::OnStarted(Instant now, SessionEffects& out) {
  if (phase_ != SessionPhase::kIdle) {
    return;
  }
  const Duration whole = std::max(options_.deadline - now, Duration(0));
  prepare_deadline_ = now + whole / 2;
  work_deadline_ = now + whole / 8 * 7;
  if (policies_.empty() || engines_.empty()) {
    return Finish(FailedPrecondition(policies_.empty() ? "no policy worker takes part" : "no engine takes part",
                                     "wait until they have registered"),
                  now, out);
  }
  phase_ = SessionPhase::kLeasing;
  for (Policy& policy : policies_) {
    Send(policy, PolicyCommandKind::kLease, now, out);
  }
}

// ---- engines

void Session::OnAgentReplied(const AgentReplied& event, Instant now) {
  const auto found = std::find_if(engines_.begin(), engines_.end(),
                                  [&](const Engine& engine) { return engine.member.slot == event.slot; });
  // Only what we asked of this incarnation in this attempt counts (RX-ID-02, -04).
  if (found == engines_.end() || found->gone || event.reply.stamp.incarnation != found->member.incarnation ||
      event.reply.stamp.attempt != options_.attempt) {
    return;
  }
  Engine& engine = *found;
  const AgentReply& reply = event.reply;
  const auto command = engine.outstanding.find(reply.stamp.seq);
  if (command == engine.outstanding.end()) {
    return;
  }
  const AgentCommandKind kind = command->second;
  engine.outstanding.erase(command);
  engine.outcome.residue = reply.residue;
  if (kind == AgentCommandKind::kTransfer) {
    engine.outcome.totals = reply.totals;
  }
  if (!reply.retryable_in_place || reply.residue.kind == ResidueKind::kUnknown) {
    engine.gone = true;
    engine.outcome.killed = true;
    engine.outcome.serving = false;
    engine.outstanding.clear();
  }
  if (reply.kind == ReplyKind::kDone) {
    return OnAgentDone(engine, kind, reply, now);
  }
  if (kind == AgentCommandKind::kHold) {
    return;  // not confirmed: the decision will have it killed
  }
  if (kind == AgentCommandKind::kAbort) {
    notes_.push_back(StrCat("engine ", event.slot, ": abort: ", reply.status.message()));
    return;
  }
  if (kind == AgentCommandKind::kKill) {
    return Fail(reply.status.WithContext(StrCat("engine ", event.slot, " can be neither held nor killed")), kNobody);
  }
  if (kind == AgentCommandKind::kResumeOld) {
    notes_.push_back(StrCat("engine ", event.slot, " stays paused: ", reply.status.message()));
    if (REFIT_MUTANT("RC-SESS-10/cleanup-error-is-primary", false, true)) {
      failure_ = reply.status;
    }
    return;
  }
  FailEngine(engine, reply.status);
}

void Session::OnAgentDone(Engine& engine, AgentCommandKind kind, const AgentReply& reply, Instant now) {
  switch (kind) {
    case AgentCommandKind::kActivate:
    case AgentCommandKind::kResumeOld:
      engine.outcome.serving = true;
      engine.outcome.resume_answered = now;
      break;
    case AgentCommandKind::kHold: engine.held = true; break;
    case AgentCommandKind::kKill:
      engine.gone = true;
      engine.outcome.killed = true;
      break;
    case AgentCommandKind::kAbort:
    case AgentCommandKind::kRelease: break;
    default: ++engine.step; break;
  }
  if (engine.gone && kind != AgentCommandKind::kKill && kind != AgentCommandKind::kAbort &&
      kind != AgentCommandKind::kHold) {
    FailEngine(engine, reply.status.ok() ? Unavailable("the incarnation has ended") : reply.status);
  }
}

void Session::OnAgentLost(const AgentLost& event) {
  const auto found = std::find_if(engines_.begin(), engines_.end(),
                                  [&](const Engine& engine) { return engine.member.slot == event.slot; });
  if (found == engines_.end() || found->gone ||
      REFIT_MUTANT("RX-ID-04/any-incarnation", event.incarnation != found->member.incarnation, false)) {
    return;
  }
  found->gone = true;
  found->outcome.killed = true;
  found->outcome.serving = false;
  found->outcome.residue = Residue::Unknown();
  found->outstanding.clear();
  if (phase_ == SessionPhase::kUndoing) {
    notes_.push_back(event.status.WithContext(StrCat("engine ", event.slot)).message());
    return;
  }
  FailEngine(*found, event.status);
}

void Session::FailEngine(Engine& engine, const Status& status) {
  const Status named = status.WithContext(StrCat("engine ", engine.member.slot));
  const bool first = engine.outcome.status.ok();
  if (first) {
    engine.outcome.status = named;
  }
  const bool detached = options_.profile.on_engine_loss == OnEngineLoss::kDetach && !failure_.has_value() &&
                        Members().size() >= MembersNeeded();
  if (append_sent_ || detached) {
    if (first) {
      notes_.push_back(named.message());
    }
    return;
  }
  Fail(named, kFirstEngine + engine.member.slot.value());
}

// ---- policy workers

void Session::OnPolicyReplied(const PolicyReplied& event) {
  const auto found = std::find_if(policies_.begin(), policies_.end(),
                                  [&](const Policy& policy) { return policy.member.rank == event.rank; });
  if (found == policies_.end() || found->gone || event.reply.stamp.incarnation != found->member.incarnation ||
      event.reply.stamp.attempt != options_.attempt) {
    return;
  }
  Policy& policy = *found;
  const PolicyReply& reply = event.reply;
  const auto command = policy.outstanding.find(reply.stamp.seq);
  if (command == policy.outstanding.end()) {
    return;
  }
  const PolicyCommandKind kind = command->second;
  policy.outstanding.erase(command);
  const Status named = reply.status.WithContext(StrCat("policy rank ", event.rank));
  if (reply.kind != ReplyKind::kDone) {
    if (kind == PolicyCommandKind::kAbort) {
      notes_.push_back(named.message());
    } else {
      Fail(named, kFirstPolicy + event.rank.value());
    }
    return;
  }
  if (kind == PolicyCommandKind::kLease) {
    policy.leased = true;
    policy.manifest = reply.manifest;
  } else if (kind == PolicyCommandKind::kSend) {
    policy.sent = true;
    policy.digest = reply.digest;
    policy.totals = reply.totals;
  }
}

// Not terminal by itself (C16): before the first `update` engines are resumed at V-1, after it the next sync repairs.
void Session::OnPolicyLost(const PolicyLost& event) {
  const auto found = std::find_if(policies_.begin(), policies_.end(),
                                  [&](const Policy& policy) { return policy.member.rank == event.rank; });
  if (found == policies_.end() || found->gone) {
    return;
  }
  found->gone = true;
  found->outstanding.clear();
  const bool needed = phase_ < SessionPhase::kTransferring || (phase_ <= SessionPhase::kEnding && !found->sent);
  const Status named = event.status.WithContext(StrCat("policy rank ", event.rank));
  if (needed) {
    Fail(named, kFirstPolicy + event.rank.value());
  } else {
    notes_.push_back(named.message());
  }
}

// ---- the end

// The first failure is primary, and among those that come before anything was undone, the one that stands first.
void Session::Fail(const Status& status, std::uint32_t place) {
  if (!failure_.has_value()) {
    failure_ = status;
    failure_place_ = place;
    return;
  }
  const bool same_step = !transfer_started_ && status.code() != StatusCode::kAborted;
  const bool replaces = REFIT_MUTANT("RC-SESS-10/last-error-wins", same_step && place < failure_place_, true);
  if (status.code() != StatusCode::kAborted || replaces) {
    notes_.push_back(replaces ? failure_->message() : status.message());
  }
  if (replaces) {
    failure_ = status;
    failure_place_ = place;
  }
}

void Session::Finish(const Status& status, Instant now, SessionEffects& out) {
  const bool success = status.ok() && committed_;
  for (Policy& policy : policies_) {
    const bool holds = policy.leased || !policy.outstanding.empty();
    if (!policy.gone && holds && !(success && options_.keep_lease)) {
      Send(policy, PolicyCommandKind::kRelease, now, out);
    }
  }
  Outcome outcome;
  outcome.status = status;
  outcome.version = options_.version;
  outcome.committed = committed_;
  outcome.digest = digest_;
  for (const Policy& policy : policies_) {
    if (policy.sent && policy.delivered()) {
      outcome.published = policy.totals;
      break;
    }
  }
  for (Engine& engine : engines_) {
    const Residue& residue = engine.outcome.residue;
    const bool touched = residue.kind == ResidueKind::kMixed || residue.kind == ResidueKind::kComplete;
    const bool lost_in_transfer = residue.kind == ResidueKind::kUnknown && transfer_started_;
    outcome.opened =
        outcome.opened || (touched && residue.attempt == options_.attempt) || lost_in_transfer || committed_;
    if (engine.outcome.status.ok() && !(committed_ && engine.outcome.serving)) {
      engine.outcome.status = status;
    }
    outcome.engines.push_back(engine.outcome);
    outcome.next_seq[engine.member.slot] = engine.next_seq;
  }
  for (Policy& policy : policies_) {
    outcome.next_policy_seq[policy.member.rank] = policy.next_seq;
  }
  const bool undecided = REFIT_MUTANT("RC-SESS-13/latch-after-commit", !committed_ && !append_sent_, true);
  const bool started = REFIT_MUTANT("RC-TERM-01/latch-before-transfer", transfer_started_, true) &&
                       REFIT_MUTANT("RC-TERM-01/no-latch-after-transfer", true, false);
  outcome.latch =
      !status.ok() && undecided && started && options_.profile.on_transfer_failure == OnTransferFailure::kLatch;
  outcome.notes = notes_;
  phase_ = SessionPhase::kFinished;
  out.emplace_back(Finished{std::move(outcome)});
}

Instant Session::next_deadline() const {
  if (phase_ == SessionPhase::kIdle || phase_ == SessionPhase::kFinished) {
    return kNever;
  }
  return phase_ >= SessionPhase::kDeciding ? options_.deadline : work_deadline_;
}

void Session::HandleDeadline(Instant now, SessionEffects& out) {
  if (now < next_deadline()) {
    return;
  }
  const Status status =
      DeadlineExceeded(StrCat("the sync was still ", ToString(phase_), " at its deadline, waiting for ", WaitingFor()));
  if (now < options_.deadline) {
    Fail(status, kNobody);
    return Advance(now, out);
  }
  if (phase_ == SessionPhase::kActivating) {
    for (Engine& engine : engines_) {
      if (!engine.outstanding.empty()) {
        FailEngine(engine, DeadlineExceeded("activate was not answered by the deadline of the sync"));
        engine.outstanding.clear();
      }
    }
    return Advance(now, out);
  }
  if (phase_ == SessionPhase::kUndoing) {
    notes_.push_back(status.message());
    return Finish(*failure_, now, out);
  }
  Finish(
      append_sent_ ? DeadlineExceeded("the commit is in doubt: its record was not confirmed by the deadline") : status,
      now, out);
}

std::string Session::WaitingFor() const {
  std::string names;
  for (const Policy& policy : policies_) {
    if (!policy.outstanding.empty()) {
      names += StrCat(names.empty() ? "" : ", ", "policy rank ", policy.member.rank, " (",
                      ToString(policy.outstanding.begin()->second), ")");
    }
  }
  for (const Engine& engine : engines_) {
    if (!engine.outstanding.empty()) {
      names += StrCat(names.empty() ? "" : ", ", "engine ", engine.member.slot, " (",
                      ToString(engine.outstanding.begin()->second), ")");
    }
  }
  return names.empty() ? "the commit record" : names;
}

}  // namespace refit::sync
