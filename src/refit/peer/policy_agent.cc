// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/peer/policy_agent.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::peer {

using sync::PolicyCommand;
using sync::ReplyKind;
using Kind = sync::PolicyCommandKind;

std::string_view ToString(PolicyPhase phase) {
  switch (phase) {
    case PolicyPhase::kIdle: return "idle";
    case PolicyPhase::kOpening: return "opening";
    case PolicyPhase::kLeased: return "leased";
    case PolicyPhase::kSending: return "sending";
  }
  return "?";
}

namespace {

Status Stale(std::string message) {
  return FailedPrecondition(StrCat("stale: ", message), "the sender has been superseded or must learn the state anew");
}

Status SourceBlocked(Kind kind) {
  return DeadlineExceeded(StrCat("source blocked: it did not return within the budget of ", ToString(kind)),
                          "look for a rank of the source that waits in a collective");
}

}  // namespace

PolicyAgent::PolicyAgent(PolicyAgentOptions options)
    : options_(std::move(options)), highest_term_(options_.term_floor) {}

void PolicyAgent::Handle(const PolicyAgentEvent& event, Instant now, PolicyAgentEffects& out) {
  if (const auto* arrived = std::get_if<PolicyCommandArrived>(&event)) {
    return OnCommand(arrived->command, now, out);
  }
  if (const auto* opened = std::get_if<SourceOpened>(&event)) {
    return OnOpened(*opened, out);
  }
  OnEnded(std::get<SendEnded>(event), out);
}

Status PolicyAgent::CheckFence(const PolicyCommand& command) const {
  const sync::Stamp& stamp = command.stamp;
  if (stamp.run != options_.run) {
    return Stale(
        StrCat(ToString(command.kind), " of run ", ToHex(stamp.run), ", this worker is in run ", ToHex(options_.run)));
  }
  if (stamp.incarnation != options_.incarnation || stamp.incarnation.is_zero()) {
    return Stale(StrCat(ToString(command.kind), " for incarnation ", ToHex(stamp.incarnation), ", this is ",
                        ToHex(options_.incarnation)));
  }
  if (std::tuple(stamp.term, stamp.seq) <= std::tuple(highest_term_, highest_seq_)) {
    return Stale(StrCat(ToString(command.kind), " (term ", stamp.term, ", seq ", stamp.seq,
                        "), accepted already up to (term ", highest_term_, ", seq ", highest_seq_, ")"));
  }
  // A retry is a later attempt under the lease of the first one (RX-XFER-08).
  const bool fits = command.kind == Kind::kLease ? stamp.attempt > attempt_ : stamp.attempt >= attempt_;
  if (!fits) {
    return Stale(StrCat(ToString(command.kind), " of attempt ", ToString(stamp.attempt), ", this worker is in attempt ",
                        ToString(attempt_)));
  }
  return OkStatus();
}

void PolicyAgent::OnCommand(const PolicyCommand& command, Instant now, PolicyAgentEffects& out) {
  if (Status fence = CheckFence(command); !fence.ok()) {
    return Reply(command, ReplyKind::kStale, std::move(fence), out);
  }
  if (command.kind == Kind::kSend && phase_ == PolicyPhase::kIdle) {
    return Reply(command, ReplyKind::kStale, Stale("send without a lease of its attempt"), out);
  }
  highest_term_ = command.stamp.term;
  highest_seq_ = command.stamp.seq;
  if (phase_ == PolicyPhase::kOpening || phase_ == PolicyPhase::kSending) {
    return OnBusyCommand(command, now, out);
  }
  switch (command.kind) {
    case Kind::kLease:
      Close(out);
      attempt_ = command.stamp.attempt;
      phase_ = PolicyPhase::kOpening;
      running_ = Running{command, now + command.budget};
      out.emplace_back(OpenSource{attempt_, command.source});
      return;
    case Kind::kSend:
      attempt_ = command.stamp.attempt;
      phase_ = PolicyPhase::kSending;
      stopping_ = false;
      running_ = Running{command, now + command.budget};
      out.emplace_back(StartSend{command.stamp, command.receivers, command.budget});
      return;
    case Kind::kRelease: Close(out); break;
    case Kind::kAbort: break;
  }
  Reply(command, ReplyKind::kDone, OkStatus(), out);
}

// The source is at work, and is left to return by itself: its iterator may run collectives (RX-XFER-13).
void PolicyAgent::OnBusyCommand(const PolicyCommand& command, Instant now, PolicyAgentEffects& out) {
  if (command.kind == Kind::kLease) {
    return Reply(command, ReplyKind::kFailed,
                 FailedPrecondition(StrCat("source blocked: it has not returned from attempt ", ToString(attempt_)),
                                    "look for a rank of the source that waits in a collective"),
                 out);
  }
  if (command.kind == Kind::kSend) {
    return Reply(command, ReplyKind::kStale, FailedPrecondition(StrCat("busy: this worker is ", ToString(phase_))),
                 out);
  }
  close_on_return_ = close_on_return_ || command.kind == Kind::kRelease;
  waiting_.push_back({command, now + command.budget});
  Stop(out);
}

void PolicyAgent::Stop(PolicyAgentEffects& out) {
  if (phase_ == PolicyPhase::kSending && !stopping_) {
    stopping_ = true;
    out.emplace_back(StopSend{attempt_});
  }
}

void PolicyAgent::Close(PolicyAgentEffects& out) {
  if (phase_ != PolicyPhase::kIdle) {
    phase_ = PolicyPhase::kIdle;
    out.emplace_back(CloseSource{});
  }
}

void PolicyAgent::OnOpened(const SourceOpened& event, PolicyAgentEffects& out) {
  if (phase_ != PolicyPhase::kOpening || event.attempt != attempt_) {
    return;
  }
  phase_ = event.status.ok() ? PolicyPhase::kLeased : PolicyPhase::kIdle;
  const std::optional<Running> lease = std::exchange(running_, std::nullopt);
  if (!lease.has_value()) {
    close_on_return_ = true;  // answered `source blocked` long ago: nobody will use it
  } else if (!event.status.ok()) {
    Reply(lease->command, ReplyKind::kFailed, event.status, out);
  } else if (!waiting_.empty()) {
    close_on_return_ = true;
    Reply(lease->command, ReplyKind::kFailed, Aborted("the lease was given up while the source opened"), out);
  } else {
    out.emplace_back(
        SendPolicyReply{{lease->command.stamp, ReplyKind::kDone, OkStatus(), event.manifest, {}, {}, highest_term_}});
  }
  AnswerWaiting(out);
}

void PolicyAgent::OnEnded(const SendEnded& event, PolicyAgentEffects& out) {
  if (phase_ != PolicyPhase::kSending || event.attempt != attempt_) {
    return;
  }
  phase_ = PolicyPhase::kLeased;
  if (const std::optional<Running> send = std::exchange(running_, std::nullopt); send.has_value()) {
    if (!waiting_.empty()) {
      Reply(send->command, ReplyKind::kFailed, Aborted("the send was aborted"), out);
    } else if (!event.status.ok()) {
      Reply(send->command, ReplyKind::kFailed, event.status, out);
    } else {
      out.emplace_back(SendPolicyReply{
          {send->command.stamp, ReplyKind::kDone, OkStatus(), nullptr, event.digest, event.totals, highest_term_}});
    }
  }
  AnswerWaiting(out);
}

void PolicyAgent::AnswerWaiting(PolicyAgentEffects& out) {
  if (std::exchange(close_on_return_, false)) {
    Close(out);
  }
  for (const Running& waiting : std::exchange(waiting_, {})) {
    Reply(waiting.command, ReplyKind::kDone, OkStatus(), out);
  }
}

void PolicyAgent::Reply(const PolicyCommand& command, ReplyKind kind, Status status, PolicyAgentEffects& out) const {
  out.emplace_back(SendPolicyReply{{command.stamp, kind, std::move(status), nullptr, {}, {}, highest_term_}});
}

// ---- time

Instant PolicyAgent::next_deadline() const {
  Instant next = running_.has_value() ? running_->deadline : kNever;
  for (const Running& waiting : waiting_) {
    next = std::min(next, waiting.deadline);
  }
  return next;
}

// The caller gets its answer, the source may return when it likes.
void PolicyAgent::HandleDeadline(Instant now, PolicyAgentEffects& out) {
  if (REFIT_MUTANT("RX-XFER-13/wait-for-ever", false, true)) {
    return;
  }
  if (running_.has_value() && running_->deadline <= now) {
    Stop(out);
    Reply(running_->command, ReplyKind::kFailed, SourceBlocked(running_->command.kind), out);
    running_.reset();
  }
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    if (waiting->deadline > now) {
      ++waiting;
      continue;
    }
    Reply(waiting->command, ReplyKind::kFailed, SourceBlocked(waiting->command.kind), out);
    waiting = waiting_.erase(waiting);
  }
}

}  // namespace refit::peer
