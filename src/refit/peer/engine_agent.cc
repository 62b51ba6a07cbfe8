// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The fences, the commands and their answers. Engine calls and the transfer are in engine_agent_calls.cc.

#include "refit/peer/engine_agent.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::peer {

using sync::AgentCommand;
using sync::ReplyKind;
using sync::Residue;
using sync::ResidueKind;
using Kind = sync::AgentCommandKind;

std::string_view ToString(AgentPhase phase) {
  switch (phase) {
    case AgentPhase::kServing: return "serving";
    case AgentPhase::kPreparing: return "preparing";
    case AgentPhase::kTransferring: return "transferring";
    case AgentPhase::kEnding: return "ending";
    case AgentPhase::kComplete: return "complete";
    case AgentPhase::kActivating: return "activating";
    case AgentPhase::kHeld: return "held";
    case AgentPhase::kDead: return "dead";
  }
  return "?";
}

namespace {

constexpr std::size_t kOvertakersMax = 16;  // ABORT, HOLD and KILL that wait; more come from nobody sane

// These overtake a running command: they end what is under way instead of adding to it.
bool Overtakes(Kind kind) { return kind == Kind::kAbort || kind == Kind::kHold || kind == Kind::kKill; }

// These speak about the incarnation, whatever attempt it is in.
bool NamesNoAttempt(Kind kind) {
  return kind == Kind::kBind || kind == Kind::kAttempt || kind == Kind::kAbort || kind == Kind::kHold ||
         kind == Kind::kKill || kind == Kind::kRelease;
}

Status Stale(std::string message) {
  return FailedPrecondition(StrCat("stale: ", message), "the sender has been superseded or must learn the state anew");
}

Status CheckStreams(const std::vector<sync::StreamSource>& streams, std::uint32_t tp_size) {
  std::vector<std::uint32_t> ranks;
  for (const sync::StreamSource& stream : streams) {
    ranks.insert(ranks.end(), stream.tp_ranks.begin(), stream.tp_ranks.end());
  }
  std::sort(ranks.begin(), ranks.end());
  for (std::uint32_t rank = 0; rank < tp_size; ++rank) {
    if (rank >= ranks.size() || ranks[rank] != rank) {
      return InvalidArgument(
          StrCat("the streams do not feed each of the TP ranks 0 to ", tp_size - 1, " exactly once"));
    }
  }
  if (ranks.size() != tp_size) {
    return InvalidArgument(StrCat("the streams feed TP rank ", ranks[tp_size], " of an engine with TP ", tp_size));
  }
  return OkStatus();
}

}  // namespace

Status CheckEngineAgentOptions(const EngineAgentOptions& options) {
  if (options.family == sync::SessionFamily::kA && options.pause_mode == sync::PauseMode::kRetract) {
    return InvalidArgument(
        StrCat("engine ", options.slot, ": pause mode retract on session family a, whose flush can never succeed"),
        "set the pause mode to abort, or use an engine of SGLang 0.5.21 or later");
  }
  if (options.family == sync::SessionFamily::kB && options.attached) {
    return FailedPrecondition(StrCat("engine ", options.slot,
                                     ": attached, of session family b, which cannot say whether "
                                     "an earlier client left a session open"),
                              "restart the engine");
  }
  if (options.tp_size == 0) {
    return InvalidArgument(StrCat("engine ", options.slot, ": TP 0"), "set tp to at least 1");
  }
  return OkStatus();
}

EngineAgent::EngineAgent(EngineAgentOptions options)
    : options_(std::move(options)),
      family_(options_.family),
      highest_term_(REFIT_MUTANT("RX-ID-03/floor-zero", options_.term_floor, Term(0))) {
  facts_.history_unknown = options_.attached && family_ == sync::SessionFamily::kC;
  facts_.version_label = options_.profile.version_label;
}

void EngineAgent::Handle(const EngineAgentEvent& event, Instant now, EngineAgentEffects& out) {
  if (const auto* arrived = std::get_if<CommandArrived>(&event)) {
    return OnCommand(arrived->command, now, out);
  }
  if (phase_ == AgentPhase::kDead) {
    return;
  }
  if (const auto* died = std::get_if<EngineDied>(&event)) {
    return Kill(died->status.WithContext("the engine died"), out);
  }
  if (std::holds_alternative<ContactLost>(event) || std::holds_alternative<ContactMade>(event)) {
    const bool lost = std::holds_alternative<ContactLost>(event) && options_.orphan_deadline > Duration(0);
    orphan_at_ = !lost ? kNever : orphan_at_ == kNever ? now + options_.orphan_deadline : orphan_at_;
    if (const auto* made = std::get_if<ContactMade>(&event); made != nullptr && made->term > highest_term_) {
      highest_term_ = made->term;
      highest_seq_ = CommandSeq(0);
    }
    return;
  }
  if (const auto* answered = std::get_if<EngineAnswered>(&event)) {
    return OnAnswer(*answered, now, out);
  }
  if (const auto* link = std::get_if<LinkOpened>(&event)) {
    return OnLinkOpened(*link, out);
  }
  if (const auto* ready = std::get_if<LoadReady>(&event)) {
    if (ready->attempt == attempt_ && transfer_ == Transfer::kRunning) {
      ++loads_waiting_;
      PostNextUpdate(now, out);
    }
    return;
  }
  if (const auto* ended = std::get_if<TransferEnded>(&event)) {
    if (ended->attempt == attempt_ && transfer_ == Transfer::kRunning) {
      ended_ = ended->totals;
      SettleTransfer(now, out);
    }
    return;
  }
  if (const auto* failed = std::get_if<TransferFailed>(&event)) {
    if (failed->attempt == attempt_ && transfer_ == Transfer::kRunning) {
      StopTransferBecause(failed->status, out);
    }
    return;
  }
  const auto& fenced = std::get<TransferFenced>(event);
  if (fenced.attempt == transfer_attempt_ && transfer_ == Transfer::kStopping) {
    transfer_ = Transfer::kNone;
    SettleTransfer(now, out);
  }
}

// ---- fences

Status EngineAgent::CheckFence(const AgentCommand& command) const {
  const sync::Stamp& stamp = command.stamp;
  if (REFIT_MUTANT("RX-ID-01/no-run", stamp.run != options_.run, false)) {
    return Stale(
        StrCat(ToString(command.kind), " of run ", ToHex(stamp.run), ", this agent is in run ", ToHex(options_.run)));
  }
  const bool another = stamp.incarnation != options_.incarnation || stamp.incarnation.is_zero();
  const bool for_whoever = REFIT_MUTANT("RX-ID-04/to-whoever-is-there", false, command.kind == Kind::kActivate);
  if (REFIT_MUTANT("RX-ID-01/no-incarnation", another && !for_whoever, false)) {
    return Stale(StrCat(ToString(command.kind), " for incarnation ", ToHex(stamp.incarnation), ", this is ",
                        ToHex(options_.incarnation)));
  }
  const auto highest = std::tuple(highest_term_, highest_seq_);
  const auto given = std::tuple(stamp.term, stamp.seq);
  const bool newer = REFIT_MUTANT("RC-RPC-07/accept-equal", given > highest, given >= highest) ||
                     REFIT_MUTANT("RC-RPC-07/no-seq", false, stamp.term >= highest_term_) ||
                     REFIT_MUTANT("RX-LEAD-02/no-term", false, stamp.term < highest_term_);
  if (!newer) {
    return Stale(StrCat(ToString(command.kind), " (term ", stamp.term, ", seq ", stamp.seq,
                        "), accepted already up to (term ", highest_term_, ", seq ", highest_seq_, ")"));
  }
  if (command.kind == Kind::kAttempt) {
    return stamp.attempt > attempt_
               ? OkStatus()
               : Stale(StrCat("attempt ", ToString(stamp.attempt), ", this agent is in attempt ", ToString(attempt_)));
  }
  if (!NamesNoAttempt(command.kind)) {
    const bool other = REFIT_MUTANT("RX-COMMIT-04/any-attempt", stamp.attempt != attempt_,
                                    stamp.attempt != attempt_ && command.kind != Kind::kActivate);
    if (REFIT_MUTANT("RX-ID-02/other-attempt-as-current", other, false)) {
      return Stale(StrCat(ToString(command.kind), " of attempt ", ToString(stamp.attempt),
                          ", this agent is in attempt ", ToString(attempt_)));
    }
    if (REFIT_MUTANT("RX-ID-01/no-version", command.kind != Kind::kResumeOld && stamp.version != version_, false)) {
      return Stale(
          StrCat(ToString(command.kind), " of version ", stamp.version, ", this attempt installs version ", version_));
    }
  }
  return OkStatus();
}

bool EngineAgent::IsForAnother(const sync::Stamp& stamp) const {
  return stamp.run != options_.run || stamp.incarnation != options_.incarnation;
}

Status EngineAgent::CheckPhase(const AgentCommand& command) const {
  const bool preparing = phase_ == AgentPhase::kPreparing;
  bool fits = false;
  switch (command.kind) {
    case Kind::kAttempt:
    case Kind::kAbort:
    case Kind::kHold:
    case Kind::kKill: return OkStatus();
    case Kind::kBind: fits = transfer_ == Transfer::kNone; break;
    case Kind::kRelease: fits = phase_ == AgentPhase::kServing || phase_ == AgentPhase::kHeld; break;
    case Kind::kOnloadWeights:
    case Kind::kPause: fits = preparing || phase_ == AgentPhase::kServing; break;
    case Kind::kFlush: fits = preparing && prepared_ >= Prepared::kPaused; break;
    case Kind::kBegin: fits = preparing && prepared_ >= Prepared::kFlushed; break;
    case Kind::kTransfer: fits = preparing && prepared_ == Prepared::kReady; break;
    case Kind::kEnd: fits = phase_ == AgentPhase::kEnding; break;
    case Kind::kActivate: {
      const Digest digest = REFIT_MUTANT("RX-COMMIT-04/any-digest", command.digest, residue_.digest);
      const AttemptId attempt = REFIT_MUTANT("RX-COMMIT-04/any-attempt", command.stamp.attempt, residue_.attempt);
      fits =
          (phase_ == AgentPhase::kComplete && residue_ == Residue::Complete(command.stamp.version, attempt, digest)) ||
          (phase_ == AgentPhase::kServing && residue_ == Residue::Old(command.stamp.version, digest)) ||
          REFIT_MUTANT("RX-COMMIT-04/activate-anything", false, true);
      break;
    }
    case Kind::kResumeOld:
      fits = REFIT_MUTANT("RX-COMMIT-07/resume-any-version", residue_.IsOld(command.stamp.version),
                          residue_.kind == ResidueKind::kOld);
      fits = (preparing || phase_ == AgentPhase::kServing) && !held_ && fits;
      fits = REFIT_MUTANT("RX-COMMIT-11/resume-mixed", fits, true);
      break;
  }
  if (fits) {
    return OkStatus();
  }
  return Stale(StrCat(ToString(command.kind), " of version ", command.stamp.version, ", this engine is ",
                      ToString(phase_), held_ ? ", held," : "", " with residue ", ToString(residue_)));
}

void EngineAgent::OnCommand(const AgentCommand& command, Instant now, EngineAgentEffects& out) {
  if (Status fence = CheckFence(command); !fence.ok()) {
    Reply(command, ReplyKind::kStale, std::move(fence), out);
    if (REFIT_MUTANT("RX-ID-04/answer-for-another", IsForAnother(command.stamp), false)) {
      // The life that was asked is not here, and what we hold says nothing of it.
      sync::AgentReply& reply = std::get<SendReply>(out.back()).reply;
      reply.residue = sync::Residue::Unknown();
      reply.serving = false;
      reply.attempt = {};
      reply.retryable_in_place = false;
    }
    return;
  }
  if (phase_ == AgentPhase::kDead) {
    // Whoever is not ours to end may answer somebody yet: nobody can say that it is held.
    const bool wanted = Overtakes(command.kind) && !options_.attached;
    return Reply(command, wanted ? ReplyKind::kDone : ReplyKind::kFailed,
                 wanted ? OkStatus() : Unavailable("this incarnation has ended", "start the engine again"), out);
  }
  const bool settling = running_.has_value() || !overtakers_.empty();
  if (settling && !Overtakes(command.kind)) {
    return Reply(command, ReplyKind::kStale,
                 FailedPrecondition(StrCat("busy: ", ToString(running_ ? running_->command.kind : Kind::kAbort),
                                           " is running, ", ToString(command.kind), " has to wait for its answer")),
                 out);
  }
  if (Status phase = CheckPhase(command); !phase.ok()) {
    return Reply(command, ReplyKind::kStale, std::move(phase), out);
  }
  if (REFIT_MUTANT("RC-RPC-07/hold-not-recorded", true, command.kind != Kind::kHold)) {
    highest_term_ = command.stamp.term;
    highest_seq_ = command.stamp.seq;
  }
  const Running accepted{command, now + command.budget};
  if (Overtakes(command.kind)) {
    if (overtakers_.size() >= REFIT_MUTANT("RX-TIME-04/unbounded", kOvertakersMax, SIZE_MAX)) {
      return Reply(command, ReplyKind::kStale,
                   ResourceExhausted(StrCat(overtakers_.size(), " commands wait for what is under way to settle")),
                   out);
    }
    overtakers_.push_back(accepted);
    return Overtake(out);
  }
  running_ = accepted;
  Start(now, out);
}

// ---- running one command

void EngineAgent::Start(Instant now, EngineAgentEffects& out) {
  const AgentCommand& command = running_->command;
  failure_ = OkStatus();
  switch (command.kind) {
    case Kind::kBind: return StartBind(now, out);
    case Kind::kAttempt: return StartAttempt(now, out);
    case Kind::kTransfer:
      phase_ = AgentPhase::kTransferring;
      transfer_ = Transfer::kRunning;
      transfer_attempt_ = attempt_;
      loads_waiting_ = 0;
      loads_posted_ = 0;
      ended_.reset();
      Await(now);
      out.emplace_back(StartTransfer{command.stamp, streams_, command.budget});
      return;
    case Kind::kActivate:
      if (phase_ == AgentPhase::kServing) {
        return Finish(ReplyKind::kDone, OkStatus(), out);
      }
      phase_ = AgentPhase::kActivating;
      break;
    case Kind::kPause: phase_ = AgentPhase::kPreparing; break;
    default: break;
  }
  begin_retried_ = false;
  flush_refusal_.clear();
  const std::vector<sync::Operation> calls = sync::CallsOf(command.kind, facts_);
  calls_.assign(calls.begin(), calls.end());
  NextCall(now, out);
}

void EngineAgent::StartAttempt(Instant now, EngineAgentEffects& out) {
  const AgentCommand& command = running_->command;
  if (REFIT_MUTANT("RX-BIND-06/use-the-link-it-has", !UsesBoundLinks(command), false)) {
    return Finish(ReplyKind::kUnbound, FailedPrecondition("a link of the attempt is not the one that is bound"), out);
  }
  attempt_ = command.stamp.attempt;
  version_ = command.stamp.version;
  prepared_ = Prepared::kNothing;
  opened_ = false;
  if (phase_ != AgentPhase::kServing) {
    phase_ = AgentPhase::kPreparing;
  }
  if (Status status = CheckAttempt(command); !status.ok()) {
    return Finish(ReplyKind::kFailed, std::move(status), out);
  }
  streams_ = command.streams;
  if (transfer_ == Transfer::kNone) {  // else it waits: READY only once the previous attempt is fenced
    NextCall(now, out);
  }
}

Status EngineAgent::CheckAttempt(const AgentCommand& command) const {
  REFIT_RETURN_IF_ERROR(CheckStreams(command.streams, options_.tp_size));
  if (command.manifest == nullptr) {
    return InvalidArgument("the attempt carries no manifest");
  }
  if (options_.expected != nullptr) {
    return weights::CheckSameTensors(*options_.expected, *command.manifest, "the policy");
  }
  return OkStatus();
}

// Every call of the running command was answered with success.
void EngineAgent::Complete(EngineAgentEffects& out) {
  const AgentCommand& command = running_->command;
  switch (command.kind) {
    case Kind::kPause: prepared_ = Prepared::kPaused; break;
    case Kind::kFlush: prepared_ = Prepared::kFlushed; break;
    case Kind::kBegin: prepared_ = Prepared::kReady; break;
    case Kind::kEnd:
      residue_ = Residue::Complete(version_, attempt_, command.digest);
      phase_ = AgentPhase::kComplete;
      break;
    case Kind::kActivate: residue_ = Residue::Old(command.stamp.version, command.digest); [[fallthrough]];
    case Kind::kResumeOld:
      phase_ = AgentPhase::kServing;
      prepared_ = Prepared::kNothing;
      held_ = false;
      break;
    default: break;
  }
  Finish(ReplyKind::kDone, OkStatus(), out);
}

void EngineAgent::Finish(ReplyKind kind, Status status, EngineAgentEffects& out) {
  const AgentCommand command = std::move(running_->command);
  running_.reset();
  calls_.clear();
  if (command.kind == Kind::kBind && kind != ReplyKind::kDone) {
    CloseOpening(out);
  }
  flush_retry_at_ = kNever;
  if (phase_ == AgentPhase::kActivating) {
    phase_ = AgentPhase::kComplete;  // refused: consistent weights, still paused; a later ACTIVATE may try again
  }
  Reply(command, kind, std::move(status), out);
  AnswerOvertakers(out);
}

void EngineAgent::Reply(const AgentCommand& command, ReplyKind kind, Status status, EngineAgentEffects& out) const {
  sync::AgentReply reply{.stamp = command.stamp,
                         .kind = kind,
                         .status = std::move(status),
                         .residue = residue_,
                         .totals = {},
                         .retryable_in_place = phase_ != AgentPhase::kDead,
                         .highest_term = highest_term_,
                         .attempt = attempt_,
                         .serving = phase_ == AgentPhase::kServing && !paused_,
                         .died_in_update = died_in_update_,
                         .links = {}};
  if (command.kind == Kind::kTransfer && ended_.has_value()) {
    reply.totals = *ended_;
  }
  if (command.kind == Kind::kBind && kind == ReplyKind::kDone) {
    reply.links = links();
  }
  out.emplace_back(SendReply{std::move(reply)});
}

// ---- overtaking

void EngineAgent::Overtake(EngineAgentEffects& out) {
  const Kind kind = overtakers_.back().command.kind;
  if (kind == Kind::kKill) {
    return Kill(Aborted("killed by command"), out);
  }
  if (running_.has_value() && running_->command.kind == Kind::kTransfer) {
    if (transfer_ == Transfer::kRunning) {
      return StopTransferBecause(Aborted(StrCat("transfer ended by ", ToString(kind))), out);
    }
    return;
  }
  if (running_.has_value()) {
    failure_ = Aborted(StrCat(ToString(running_->command.kind), " ended by ", ToString(kind)));
    if (outstanding_.has_value()) {
      return;  // its answer decides
    }
    return Finish(ReplyKind::kFailed, failure_, out);
  }
  AnswerOvertakers(out);
}

// Only when nothing is under way any more: what HOLD or ABORT confirm must be true.
void EngineAgent::AnswerOvertakers(EngineAgentEffects& out) {
  if (running_.has_value() || outstanding_.has_value() || transfer_ != Transfer::kNone) {
    return;
  }
  const bool hold = std::any_of(overtakers_.begin(), overtakers_.end(),
                                [](const Running& each) { return each.command.kind == Kind::kHold; });
  if (hold && !paused_ && phase_ != AgentPhase::kDead && !std::exchange(pausing_to_hold_, true)) {
    outstanding_ = Outstanding{next_call_++, sync::Operation::kPause};
    out.emplace_back(CallEngine{outstanding_->call, sync::Operation::kPause, {}, options_.call_deadline});
    return;
  }
  pausing_to_hold_ = false;
  for (const Running& overtaker : std::exchange(overtakers_, {})) {
    Status status;
    if (overtaker.command.kind == Kind::kHold) {
      if (phase_ == AgentPhase::kDead && !options_.attached) {
        // out of traffic for good
      } else if (paused_) {
        held_ = true;
        if (phase_ != AgentPhase::kComplete) {
          phase_ = AgentPhase::kHeld;
        }
      } else {
        status = FailedPrecondition("the engine is not confirmed paused", "kill it to keep it out of traffic");
      }
    }
    Reply(overtaker.command, status.ok() ? ReplyKind::kDone : ReplyKind::kFailed, status, out);
  }
}

// The incarnation ends. Nothing is called any more, whatever was outstanding.
void EngineAgent::Kill(const Status& status, EngineAgentEffects& out) {
  out.emplace_back(KillEngine{status.message()});  // first: whoever stops the transfer need not wait for a hung call
  if (transfer_ == Transfer::kRunning) {
    out.emplace_back(StopTransfer{transfer_attempt_});
  }
  died_in_update_ =
      died_in_update_ || (outstanding_.has_value() && outstanding_->operation == sync::Operation::kUpdate);
  phase_ = AgentPhase::kDead;
  residue_ = Residue::Unknown();
  outstanding_.reset();
  transfer_ = Transfer::kNone;
  paused_ = false;
  if (running_.has_value()) {
    return Finish(ReplyKind::kFailed, status, out);
  }
  AnswerOvertakers(out);
}

// ---- time

Instant EngineAgent::next_deadline() const {
  Instant next = std::min(flush_retry_at_, phase_ == AgentPhase::kServing ? kNever : orphan_at_);
  if (running_.has_value()) {
    next = std::min(next, running_->deadline);
  }
  if (transfer_ == Transfer::kRunning) {
    next = std::min(next, stalled_at_);
  }
  for (const Running& overtaker : overtakers_) {
    next = std::min(next, overtaker.deadline);
  }
  return next;
}

void EngineAgent::HandleDeadline(Instant now, EngineAgentEffects& out) {
  for (const Running& overtaker : overtakers_) {
    if (overtaker.deadline <= now) {
      return Kill(DeadlineExceeded(StrCat("what was under way did not settle within the budget of ",
                                          ToString(overtaker.command.kind))),
                  out);
    }
  }
  if (running_.has_value() && running_->deadline <= now) {
    return OnBudgetSpent(out);
  }
  if (flush_retry_at_ <= now) {
    flush_retry_at_ = kNever;
    return NextCall(now, out);
  }
  if (transfer_ == Transfer::kRunning && stalled_at_ <= now) {
    return StopTransferBecause(
        DeadlineExceeded(StrCat("no load came for ", options_.stall_deadline / std::chrono::milliseconds(1),
                                " ms, after ", loads_posted_)),
        out);
  }
  // What serves, goes on serving; everything else holds memory for nobody.
  if (orphan_at_ <= now && REFIT_MUTANT("RX-JRNL-05/never-exits", phase_ != AgentPhase::kServing, false)) {
    orphan_at_ = kNever;
    Kill(Unavailable("no controller could be reached within the orphan deadline"), out);
  }
}

void EngineAgent::OnBudgetSpent(EngineAgentEffects& out) {
  const Kind kind = running_->command.kind;
  if (kind == Kind::kBind) {
    return Finish(ReplyKind::kFailed, DeadlineExceeded("a link was not proved within the budget of bind"), out);
  }
  if (outstanding_.has_value()) {
    return Kill(DeadlineExceeded(StrCat(ToString(outstanding_->operation), " got no complete answer within its budget",
                                        LoadText(outstanding_->operation))),
                out);
  }
  if (kind == Kind::kFlush) {
    return RefuseFlush(out);
  }
  if (kind != Kind::kTransfer) {  // an attempt that waits for the fence of the one before
    return Kill(
        DeadlineExceeded(StrCat("the transfer of attempt ", ToString(transfer_attempt_), " could not be fenced")), out);
  }
  if (transfer_ == Transfer::kRunning) {
    StopTransferBecause(DeadlineExceeded("transfer did not end within its budget"), out);
  }
  FailTransfer(out);
}

}  // namespace refit::peer
