// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Who is here: agents and policy workers that register, commands outside a session, and what a successor makes of what
// an agent says it holds.

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/control/controller.h"

namespace refit::control {
namespace {

using fleet::SlotState;
using sync::AgentCommandKind;

}  // namespace

// ---- registration

void Controller::On(const AgentRegistered& event, Instant now) {
  const sync::EngineMember& member = event.member;
  const auto found = slots_.find(member.slot);
  if (found == slots_.end()) {
    return;  // a slot that the configuration does not name takes no part
  }
  Slot& slot = found->second;
  const bool past = std::find(slot.past.begin(), slot.past.end(), member.incarnation) != slot.past.end();
  const bool known = slot.incarnation == member.incarnation;
  if (past || slot.state == SlotState::kRetired || (slot.service == Service::kLeaving && !known)) {
    return;  // that life is over, whatever is still heard of it
  }
  if (known && slot.state != SlotState::kEmpty && slot.state != SlotState::kLaunching) {
    return OnHeardAgain(member.slot, slot, now);
  }
  if (!known && slot.state != SlotState::kEmpty && slot.state != SlotState::kLaunching) {
    // Whoever launches a life has buried the one before.
    Lose(member.slot, slot.incarnation, Unavailable("a new incarnation took its slot"), Death::kConfirmed, now);
  }
  if (slot.state == SlotState::kRetired) {
    return;
  }
  if (!known && slot.adopting && slot.in_traffic) {
    LeaveTraffic(member.slot, slot, now);  // the life that the journal names is dead
    slot.in_traffic = false;
  }
  OnLaunched(member.slot, slot, member, now);
}

// The same life once more. What we know of it is newer, and quarantine is final (C14): but it can be reached again.
void Controller::OnHeardAgain(SlotIndex index, Slot& slot, Instant now) {
  if (slot.state == SlotState::kZombie) {
    slot.launch_at = now;  // its kill is tried again
  } else if (slot.state == SlotState::kKilling && !slot.kill.has_value()) {
    SendErrand(index, slot, Errand::kKill, AgentCommandKind::kKill, WeightVersion(0));
  }
}

void Controller::OnLaunched(SlotIndex index, Slot& slot, const sync::EngineMember& member, Instant now) {
  slot.launch_at = kNever;
  slot.expected_until = kNever;
  if (slot.state == SlotState::kEmpty) {
    Enter(index, slot, SlotState::kLaunching);
  }
  slot.incarnation = member.incarnation;
  slot.member = member;
  slot.attached = member.attached;
  slot.next_seq = CommandSeq(1);
  slot.errands.clear();
  slot.catch_ups = 0;
  slot.version = WeightVersion(0);  // launch weights: STALE until a refit or a catch-up has reached it
  slot.last_error.clear();
  slot.adopting = false;
  if (slot.leaving.has_value() && slot.leaving->action == SlotAction::kRestart) {
    EndLeaving(slot, OkStatus());
  }
  Enter(index, slot, SlotState::kStale);
  unbound_.insert(index);
  if (options_.use_fault_tolerance) {
    health_.Watch(index, slot.incarnation, now);
  }
  if (REFIT_MUTANT("RX-COMMIT-08/admit-at-boot", false, true)) {
    fleet::RouterEffects effects;
    slot.in_traffic = true;
    router_.Want(index, slot.incarnation, now, effects);
    CarryOut(std::move(effects), now);
  }
  if (fleet::Recovery* recovery = RecoveryOf(index); recovery != nullptr) {
    fleet::RecoveryEffects effects;
    recovery->OnLaunched(index, member.incarnation, now, effects);
    CarryOut(std::move(effects), now);
  }
  const bool fresh =
      !succeeds_ && member.attempt == AttemptId{} && member.residue == sync::Residue::Old(WeightVersion(0));
  if (fresh && member.attached && REFIT_MUTANT("RC-KILL-07/attach-unpaused", true, false)) {
    // It may be serving what nobody of this run published: paused first, and STALE as any launch is.
    slot.adopting = true;
    SendErrand(index, slot, Errand::kHold, AgentCommandKind::kHold, WeightVersion(0));
  }
  if (!fresh && slot.member.has_value()) {
    // It served another controller: this one is heard first, and told what it holds (RX-JRNL-04).
    slot.adopting = true;
    SendErrand(index, slot, Errand::kFence, AgentCommandKind::kAbort, WeightVersion(0));
  }
}

void Controller::On(const AgentGone& event, Instant now) {
  if (event.died_in_update) {  // whichever is heard first: this, or its last reply
    Forward(sync::AgentLost{event.slot, event.incarnation, event.status, true}, now);
  }
  Lose(event.slot, event.incarnation, event.status, event.confirmed_dead ? Death::kConfirmed : Death::kUnreachable,
       now);
}

void Controller::On(const PolicyRegistered& event, Instant now) {
  const sync::PolicyMember& member = event.member;
  const auto found = policies_.find(member.rank);
  if (found == policies_.end()) {
    return;
  }
  Worker& worker = found->second;
  const bool is_new = worker.incarnation != member.incarnation;
  const bool replaces = worker.member.has_value() && is_new;
  const bool found_again = !worker.member.has_value();
  if (is_new) {  // else it remembers what it accepted
    worker.next_seq = CommandSeq(1);
  }
  worker.incarnation = member.incarnation;
  worker.member = member;
  if (found_again || replaces) {
    for (auto& [index, slot] : slots_) {
      slot.catch_ups = 0;  // those that failed may have failed for want of him
    }
  }
  if (found_again && succeeds_) {
    // It may still send for the controller before this one, to nobody (RX-JRNL-04).
    SendErrand(member.rank, worker, sync::PolicyCommandKind::kAbort, committed_, options_.command_budget);
  }
  if (replaces) {
    Forward(sync::PolicyLost{member.rank, Unavailable("a new incarnation took its rank")}, now);
  }
  for (const auto& [index, slot] : slots_) {
    const bool linked =
        slot.member.has_value() &&
        std::all_of(slot.member->links.begin(), slot.member->links.end(), [&member](const sync::StreamSource& link) {
          return link.policy != member.rank || link.incarnation == member.incarnation;
        });
    if (slot.member.has_value() && !linked) {
      unbound_.insert(index);
    }
  }
}

void Controller::On(const PolicyGone& event, Instant now) {
  const auto found = policies_.find(event.rank);
  if (found == policies_.end() || !found->second.member.has_value() ||
      found->second.member->incarnation != event.incarnation) {
    return;
  }
  found->second.member.reset();
  Forward(sync::PolicyLost{event.rank, event.status}, now);
}

// ---- commands outside a session

void Controller::SendErrand(SlotIndex index, Slot& slot, Errand errand, AgentCommandKind kind, WeightVersion version) {
  sync::AgentCommand command;
  const AttemptId attempt = slot.member.has_value() ? slot.member->attempt : AttemptId{};
  command.stamp = {options_.run, options_.term, slot.next_seq, attempt, version, slot.incarnation};
  command.kind = kind;
  command.budget = options_.command_budget;
  command.digest = committed_digest_;
  slot.errands.emplace(slot.next_seq, errand);
  slot.next_seq = slot.next_seq.Next();
  fresh_.emplace_back(sync::SendToAgent{index, std::move(command)});
}

void Controller::SendErrand(PolicyRank rank, Worker& worker, sync::PolicyCommandKind kind, WeightVersion version,
                            Duration budget) {
  sync::PolicyCommand command;
  command.stamp = {
      options_.run, options_.term, worker.next_seq, {options_.term, attempts_}, version, worker.member->incarnation};
  command.kind = kind;
  command.budget = budget;
  worker.next_seq = worker.next_seq.Next();
  fresh_.emplace_back(sync::SendToPolicy{rank, std::move(command)});
}

void Controller::OnAgentReplied(const sync::AgentReplied& event, Instant now) {
  if (Superseded(event.reply.highest_term)) {
    return;
  }
  const auto found = slots_.find(event.slot);
  if (found == slots_.end()) {
    return;
  }
  Slot& slot = found->second;
  const sync::Stamp& stamp = event.reply.stamp;
  const auto errand = slot.errands.find(stamp.seq);
  const bool ours = stamp.term == options_.term && stamp.incarnation == slot.incarnation;
  if (errand == slot.errands.end() || !ours) {
    return Forward(event, now);
  }
  const Errand what = errand->second;
  slot.errands.erase(errand);
  if (what == Errand::kKill) {
    if (event.reply.kind == sync::ReplyKind::kDone) {  // else somebody answered who is not that life
      OnDead(event.slot, slot, true, now);
    }
    return;
  }
  if (what == Errand::kHold && slot.state == SlotState::kRetired) {
    if (event.reply.kind == sync::ReplyKind::kDone) {
      slot.in_traffic = false;
      Forward(sync::OutOfTraffic{event.slot, slot.incarnation}, now);
    }
    return;
  }
  if (!event.reply.retryable_in_place || event.reply.residue.kind == sync::ResidueKind::kUnknown) {
    return Lose(event.slot, slot.incarnation, event.reply.status, Death::kWanted, now);
  }
  OnErrandDone(event.slot, slot, what, event.reply, now);
}

void Controller::OnErrandDone(SlotIndex index, Slot& slot, Errand errand, const sync::AgentReply& reply, Instant now) {
  const bool done = reply.kind == sync::ReplyKind::kDone;
  switch (errand) {
    case Errand::kFence:
      if (slot.adopting) {
        Reconcile(index, slot, reply, now);
        if (slot.spared && !slot.adopting) {
          LeaveTraffic(index, slot, now);  // it serves nothing that counts
        }
      }
      return;
    case Errand::kResume:
    case Errand::kActivate:
      slot.adopting = false;
      slot.member->residue = reply.residue;
      slot.member->serving = done;
      if (done) {
        EnterServing(index, slot, now);
      } else if (slot.spared) {
        LeaveTraffic(index, slot, now);
      }
      return;  // else it stays paused: a catch-up, or the next refit
    case Errand::kRelease:
      if (done) {
        return SendErrand(index, slot, Errand::kOnload, AgentCommandKind::kOnloadWeights, WeightVersion(0));
      }
      [[fallthrough]];
    case Errand::kOnload:
      if (fleet::Recovery* recovery = RecoveryOf(index); recovery != nullptr) {
        fleet::RecoveryEffects effects;
        recovery->OnOffloaded(index, slot.incarnation, done ? OkStatus() : reply.status, effects);
        CarryOut(std::move(effects), now);
      }
      return;
    case Errand::kHold:
      slot.adopting = false;
      slot.member->residue = reply.residue;
      slot.member->serving = reply.serving;
      if (!done) {
        Lose(index, slot.incarnation, reply.status.WithContext("it cannot be paused"), Death::kWanted, now);
      } else if (slot.leaving.has_value() && slot.leaving->holding) {
        OnHeld(index, slot, now);
      }
      return;
    case Errand::kUnbind:
      if (done) {
        slot.member->links.clear();
        unbound_.insert(index);
      } else if (shutdown_.has_value() && shutdown_->status.ok()) {
        shutdown_->status = reply.status.WithContext(StrCat("engine ", index));
      }
      return;
    case Errand::kKill: return;  // whoever is killed here has no life in the slot any more
  }
}

// The table of contract §II.9: the last record of the journal against what the agent says.
void Controller::Reconcile(SlotIndex index, Slot& slot, const sync::AgentReply& reply, Instant now) {
  const sync::Residue& residue = reply.residue;
  slot.member->residue = residue;
  slot.member->serving = reply.serving;
  slot.member->attempt = reply.attempt;
  slot.member->links.clear();  // they are asked for again; what is bound stays bound
  slot.version = residue.kind == sync::ResidueKind::kOld ? residue.version : WeightVersion(0);
  slot.adopting = false;
  if (slot.service != Service::kIn) {
    return;  // whatever it holds: it is drained, once more
  }
  // Whoever is heard while a refit runs takes no part in it: the next version would be published past it.
  const bool refitting = session_.has_value() && !catching_up_.has_value();
  const bool current = committed_ > WeightVersion(0) && residue.version == committed_ &&
                       REFIT_MUTANT("RX-JRNL-04/admit-in-mid-refit", !refitting, true);
  const auto take = [&](std::initializer_list<SlotState> states) {
    for (const SlotState state : states) {
      Enter(index, slot, state);
    }
  };
  switch (residue.kind) {
    case sync::ResidueKind::kOld:
      if (committed_ == WeightVersion(0) && residue.version == committed_ && !reply.serving) {
        slot.adopting = true;
        return SendErrand(index, slot, Errand::kResume, AgentCommandKind::kResumeOld, committed_);
      }
      if (!current) {
        return;  // STALE: never resumed; a catch-up, or the next refit
      }
      if (residue.digest != committed_digest_) {
        return Lose(index, slot.incarnation, DataLoss("it serves other weights than the committed ones"),
                    Death::kWanted, now);
      }
      take({SlotState::kBound, SlotState::kUpdating, SlotState::kComplete, SlotState::kServing});
      if (reply.serving) {
        return EnterServing(index, slot, now);
      }
      Enter(index, slot, SlotState::kPaused);
      slot.adopting = true;
      return SendErrand(index, slot, Errand::kResume, AgentCommandKind::kResumeOld, committed_);
    case sync::ResidueKind::kComplete: {
      take({SlotState::kBound, SlotState::kUpdating, SlotState::kComplete});
      const auto member = members_.find(index);
      const bool is_member = member != members_.end() && member->second.incarnation == slot.incarnation &&
                             member->second.attempt == residue.attempt;
      if (!current) {
        return;  // held: a new attempt when somebody asks
      }
      if (REFIT_MUTANT("RX-JRNL-04/activate-any-digest", residue.digest != committed_digest_, false)) {
        return Lose(index, slot.incarnation, DataLoss("it holds other weights than the committed ones"), Death::kWanted,
                    now);
      }
      if (is_member) {
        slot.adopting = true;
        SendErrand(index, slot, Errand::kActivate, AgentCommandKind::kActivate, committed_);
      }
      return;
    }
    case sync::ResidueKind::kMixed: return take({SlotState::kBound});
    case sync::ResidueKind::kUnknown: return;
  }
}

}  // namespace refit::control
