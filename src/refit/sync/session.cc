// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What events mean: answers, losses, the end. What becomes of engines that fail is in session_failures.cc, what is sent
// next in session_steps.cc.

#include "refit/sync/session.h"

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/sync/envelope.h"

namespace refit::sync {

Session::Session(SessionOptions options) : options_(std::move(options)), prng_(options_.seed), root_(options_.digest) {
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
    OnAgentReplied(*agent, now, out);
  } else if (const auto* agent_lost = std::get_if<AgentLost>(&event)) {
    OnAgentLost(*agent_lost, out);
  } else if (const auto* away = std::get_if<OutOfTraffic>(&event)) {
    if (Engine* engine = Find(away->slot, away->incarnation); engine != nullptr) {
      engine->out = true;
    }
    std::erase(options_.outside, std::pair(away->slot, away->incarnation));
  } else if (const auto* delivered = std::get_if<Delivered>(&event)) {
    OnDelivered(*delivered, now, out);
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
  work_deadline_ = now + std::max(options_.deadline - now, Duration(0)) / 8 * 7;
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

Session::Engine* Session::Find(SlotIndex slot, Incarnation incarnation) {
  const auto found = std::find_if(engines_.begin(), engines_.end(),
                                  [slot](const Engine& engine) { return engine.member.slot == slot; });
  if (found == engines_.end() ||
      REFIT_MUTANT("RX-ID-04/any-incarnation", found->member.incarnation != incarnation, false)) {
    return nullptr;
  }
  return &*found;
}

void Session::OnAgentReplied(const AgentReplied& event, Instant now, SessionEffects& out) {
  const AgentReply& reply = event.reply;
  Engine* const engine = Find(event.slot, reply.stamp.incarnation);
  if (engine == nullptr || engine->gone) {
    return;
  }
  // Only what we asked of this incarnation in that attempt counts (RX-ID-02, -04).
  const auto command = engine->outstanding.find(reply.stamp.seq);
  if (command == engine->outstanding.end() || command->second.attempt != reply.stamp.attempt) {
    return;
  }
  const AgentCommandKind kind = command->second.kind;
  engine->outstanding.erase(command);
  engine->outcome.residue = reply.residue;
  opened_ = opened_ || reply.residue.kind == ResidueKind::kMixed || reply.residue.kind == ResidueKind::kComplete;
  if (kind == AgentCommandKind::kTransfer) {
    engine->outcome.totals = reply.totals;
    if (reply.residue.kind == ResidueKind::kMixed) {
      MoveTo(*engine, fleet::SlotState::kUpdating, out);
    }
  }
  if (!reply.retryable_in_place || reply.residue.kind == ResidueKind::kUnknown) {
    CountDeath(reply.died_in_update);
    return Lose(*engine, kind, reply.status.ok() ? Unavailable("the incarnation has ended") : reply.status, out);
  }
  if (reply.kind == ReplyKind::kDone) {
    return OnAgentDone(*engine, kind, reply, now, out);
  }
  OnAgentFailed(*engine, kind, reply, now, out);
}

void Session::OnAgentDone(Engine& engine, AgentCommandKind kind, const AgentReply& reply, Instant now,
                          SessionEffects& out) {
  switch (kind) {
    case AgentCommandKind::kBind:
      engine.streams = reply.links;
      engine.member.links = reply.links;
      out.emplace_back(Bound{engine.member.slot, reply.links});
      MoveTo(engine, fleet::SlotState::kBound, out);
      ++engine.step;
      break;
    case AgentCommandKind::kEnd:
      engine.complete = options_.attempt;
      MoveTo(engine, fleet::SlotState::kComplete, out);
      ++engine.step;
      break;
    case AgentCommandKind::kActivate:
    case AgentCommandKind::kResumeOld:
      engine.outcome.serving = true;
      engine.outcome.resume_answered = now;
      MoveTo(engine, fleet::SlotState::kServing, out);
      break;
    case AgentCommandKind::kHold:
      engine.out = true;
      if (std::exchange(engine.outcome.serving, false)) {
        MoveTo(engine, fleet::SlotState::kPaused, out);
      }
      break;
    case AgentCommandKind::kKill:
    case AgentCommandKind::kAbort:
    case AgentCommandKind::kRelease: break;
    default: ++engine.step; break;
  }
}

// ---- policy workers

void Session::OnPolicyReplied(const PolicyReplied& event) {
  const auto found = std::find_if(policies_.begin(), policies_.end(),
                                  [&](const Policy& policy) { return policy.member.rank == event.rank; });
  if (found == policies_.end() || found->gone || event.reply.stamp.incarnation != found->member.incarnation) {
    return;
  }
  Policy& policy = *found;
  const PolicyReply& reply = event.reply;
  const auto command = policy.outstanding.find(reply.stamp.seq);
  if (command == policy.outstanding.end() || command->second.attempt != reply.stamp.attempt) {
    return;
  }
  const PolicyCommandKind kind = command->second.kind;
  policy.outstanding.erase(command);
  const Status named = reply.status.WithContext(StrCat("policy rank ", event.rank));
  if (reply.kind != ReplyKind::kDone) {
    if (kind == PolicyCommandKind::kAbort) {
      Fail(named, kFirstPolicy + event.rank.value());  // `source blocked`: nobody can begin again (RX-XFER-07, -13)
    } else if (kind == PolicyCommandKind::kSend && attempt_failure_.has_value()) {
      // we ended it ourselves
    } else if (kind == PolicyCommandKind::kSend && IsOfTheWay(reply.status) && options_.profile.max_attempts > 1) {
      FailAttempt(named);
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
  const bool needed = phase_ < SessionPhase::kTransferring || (phase_ <= SessionPhase::kFencing && !found->sent) ||
                      attempt_failure_.has_value();
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

// Whether a failure ends the run: what the engines hold, or how they are linked, is not known well enough any more.
bool Session::Latches() const {
  const Profile& profile = options_.profile;
  const bool started = REFIT_MUTANT("RC-TERM-01/latch-before-transfer", transfer_started_, true) &&
                       REFIT_MUTANT("RC-TERM-01/no-latch-after-transfer", true, false);
  return (started && profile.on_transfer_failure == OnTransferFailure::kLatch &&
          REFIT_MUTANT("RC-SESS-09/ignore-the-capability", !options_.redo_safe, true)) ||
         (REFIT_MUTANT("RC-BIND-05/allow-retry", bind_failed_, false) &&
          profile.on_bind_failure == OnBindFailure::kLatch) ||
         (equivocated_ && options_.kind == SessionKind::kRefit);
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
  outcome.attempt = options_.attempt;
  outcome.digest = digest_;
  outcome.opened = opened_ || committed_;
  outcome.systemic = systemic_ || (!status.ok() && FailedAlike());
  outcome.deaths_in_update = deaths_in_update_ >= kDeathsInUpdate;
  outcome.insufficient = insufficient_;
  outcome.in_doubt = append_sent_ && !committed_;
  for (const Policy& policy : policies_) {
    if (policy.sent && policy.delivered()) {
      outcome.published = policy.totals;
      break;
    }
  }
  for (Engine& engine : engines_) {
    const Residue& residue = engine.outcome.residue;
    if (residue.kind == ResidueKind::kMixed) {
      MoveTo(engine, fleet::SlotState::kBound, out);
    }
    if (engine.outcome.status.ok() && !(committed_ && engine.outcome.serving)) {
      engine.outcome.status = status;
    }
    outcome.engines.push_back(engine.outcome);
  }
  const bool undecided = REFIT_MUTANT("RC-SESS-13/latch-after-commit", !committed_ && !append_sent_, true);
  outcome.latch = !status.ok() && undecided && Latches();
  outcome.notes = notes_;
  phase_ = SessionPhase::kFinished;
  out.emplace_back(Finished{std::move(outcome)});
}

Instant Session::next_deadline() const {
  if (phase_ == SessionPhase::kIdle || phase_ == SessionPhase::kFinished) {
    return kNever;
  }
  const Instant end = phase_ >= SessionPhase::kDeciding ? options_.deadline : work_deadline_;
  Instant next = phase_ == SessionPhase::kFencing ? std::min(end, next_attempt_at_) : end;
  for (const Engine& engine : engines_) {
    if (engine.not_before != Instant{}) {
      next = std::min(next, engine.not_before);
    }
  }
  return next;
}

void Session::HandleDeadline(Instant now, SessionEffects& out) {
  if (now < next_deadline()) {
    return;
  }
  for (Engine& engine : engines_) {
    if (engine.not_before <= now) {
      engine.not_before = {};
    }
  }
  if (now >= (phase_ >= SessionPhase::kDeciding ? options_.deadline : work_deadline_)) {
    return OnDeadline(now, out);
  }
  Advance(now, out);
}

void Session::OnDeadline(Instant now, SessionEffects& out) {
  const Status status =
      DeadlineExceeded(StrCat("the sync was still ", ToString(phase_), " at its deadline, waiting for ", WaitingFor()));
  if (now < options_.deadline) {
    Fail(status, kNobody);
    return Advance(now, out);
  }
  if (phase_ == SessionPhase::kActivating) {
    for (Engine& engine : engines_) {
      if (!engine.outstanding.empty() || std::exchange(engine.not_before, {}) != Instant{}) {
        Lose(engine, AgentCommandKind::kActivate,
             DeadlineExceeded("activate was not answered by the deadline of the sync"), out);
      }
    }
    return Advance(now, out);
  }
  if (phase_ == SessionPhase::kUndoing) {
    notes_.push_back(status.message());
    return Finish(*failure_, now, out);
  }
  Finish(append_sent_ ? Aborted("IN_DOUBT: the commit was not confirmed by the deadline of the sync",
                                "ask again with the same request id")
                      : status,
         now, out);
}

std::string Session::WaitingFor() const {
  std::string names;
  for (const Policy& policy : policies_) {
    if (!policy.outstanding.empty()) {
      names += StrCat(names.empty() ? "" : ", ", "policy rank ", policy.member.rank, " (",
                      ToString(policy.outstanding.begin()->second.kind), ")");
    }
  }
  for (const Engine& engine : engines_) {
    if (!engine.outstanding.empty()) {
      names += StrCat(names.empty() ? "" : ", ", "engine ", engine.member.slot, " (",
                      ToString(engine.outstanding.begin()->second.kind), ")");
    } else if (phase_ == SessionPhase::kDeciding && !append_sent_ && engine.gone && !engine.out) {
      names += StrCat(names.empty() ? "" : ", ", "engine ", engine.member.slot, " (to be out of traffic)");
    }
  }
  return names.empty() ? "the commit record" : names;
}

}  // namespace refit::sync
