// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/control/controller.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::control {
namespace {

// A caller asks again within minutes of a lost reply, not after this many other syncs.
constexpr Duration kReleaseBudget = std::chrono::seconds(10);
constexpr std::size_t kRecordedMax = 64;

}  // namespace

Controller::Controller(ControllerOptions options) : options_(std::move(options)) {
  for (const SlotIndex slot : options_.slots) {
    slots_[slot];
  }
  for (const PolicyRank rank : options_.policy_ranks) {
    policies_[rank];
  }
}

void Controller::Handle(const ControllerEvent& event, Instant now, ControllerEffects& out) {
  if (const auto* agent = std::get_if<AgentRegistered>(&event)) {
    OnAgentRegistered(agent->member, now, out);
  } else if (const auto* agent_gone = std::get_if<AgentGone>(&event)) {
    OnAgentGone(*agent_gone, now, out);
  } else if (const auto* policy = std::get_if<PolicyRegistered>(&event)) {
    OnPolicyRegistered(policy->member, now, out);
  } else if (const auto* policy_gone = std::get_if<PolicyGone>(&event)) {
    OnPolicyGone(*policy_gone, now, out);
  } else if (const auto* request = std::get_if<SyncRequested>(&event)) {
    OnSyncRequested(*request, now, out);
  } else if (std::holds_alternative<HashesTaken>(event)) {
    ReturnLeases(out);
  } else {
    Forward(std::get<sync::SessionEvent>(event), now, out);
  }
}

// ---- who is here

void Controller::OnAgentRegistered(const sync::EngineMember& member, Instant now, ControllerEffects& out) {
  const auto found = slots_.find(member.slot);
  if (found == slots_.end()) {
    return;  // a slot that the configuration does not name takes no part
  }
  Slot& slot = found->second;
  if (slot.member.has_value() && slot.member->incarnation == member.incarnation) {
    return;  // the same life, again: what we know of it is newer
  }
  if (slot.member.has_value()) {
    const Incarnation old = slot.member->incarnation;
    Forward(sync::AgentLost{member.slot, old, Unavailable("a new incarnation took its slot")}, now, out);
  }
  slot.member = member;
  slot.version = WeightVersion(0);  // launch weights: STALE until a sync has reached it
  slot.last_error.clear();
}

void Controller::OnAgentGone(const AgentGone& event, Instant now, ControllerEffects& out) {
  const auto found = slots_.find(event.slot);
  if (found == slots_.end() || !found->second.member.has_value() ||
      found->second.member->incarnation != event.incarnation) {
    return;
  }
  found->second.member.reset();
  found->second.last_error = event.status.ToString();
  Forward(sync::AgentLost{event.slot, event.incarnation, event.status}, now, out);
}

void Controller::OnPolicyRegistered(const sync::PolicyMember& member, Instant now, ControllerEffects& out) {
  const auto found = policies_.find(member.rank);
  if (found == policies_.end()) {
    return;
  }
  std::optional<sync::PolicyMember>& known = found->second.member;
  const bool replaces = known.has_value() && known->incarnation != member.incarnation;
  known = member;
  if (replaces) {
    Forward(sync::PolicyLost{member.rank, Unavailable("a new incarnation took its rank")}, now, out);
  }
}

void Controller::OnPolicyGone(const PolicyGone& event, Instant now, ControllerEffects& out) {
  const auto found = policies_.find(event.rank);
  if (found == policies_.end() || !found->second.member.has_value() ||
      found->second.member->incarnation != event.incarnation) {
    return;
  }
  found->second.member.reset();
  Forward(sync::PolicyLost{event.rank, event.status}, now, out);
}

// ---- one sync at a time

void Controller::OnSyncRequested(const SyncRequested& event, Instant now, ControllerEffects& out) {
  if (latch_.has_value() && REFIT_MUTANT("RC-TERM-02/latch-not-checked", true, false)) {
    out.emplace_back(SyncAnswered{
        event.request_id,
        FailedPrecondition(StrCat("terminal: an earlier sync of this run failed for good: ", latch_->ToString()),
                           "restart the engines and the controller"),
        std::nullopt});
    return;
  }
  if (session_.has_value() && REFIT_MUTANT("RC-SYNC-07/no-guard", true, false)) {
    if (!event.request_id.empty() && waiting_.front() == event.request_id) {
      waiting_.push_back(event.request_id);  // the same request again: both get the answer
      return;
    }
    out.emplace_back(SyncAnswered{
        event.request_id,
        ResourceExhausted(StrCat("busy: sync ", waiting_.front(), " is running"), "wait until it has ended"),
        std::nullopt});
    return;
  }
  if (const auto recorded = recorded_.find(event.request_id); recorded != recorded_.end()) {
    out.emplace_back(SyncAnswered{event.request_id, recorded->second.status, recorded->second.outcome});
    return;
  }
  stale_ = REFIT_MUTANT("RC-SYNC-01/clear-early", true, false);
  if (Status here = CheckRegistered(); !here.ok()) {
    out.emplace_back(SyncAnswered{event.request_id, std::move(here), std::nullopt});
    return;
  }
  StartSession(event, now, out);
}

// Every policy worker, and as many engines as the profile must have serve the version.
Status Controller::CheckRegistered() const {
  if (slots_.empty() || policies_.empty()) {
    return FailedPrecondition(StrCat("the job has ", slots_.size(), " engines and ", policies_.size(), " policy ranks"),
                              "configure at least one of each");
  }
  std::string missing;
  const auto add = [&missing](const std::string& name) { missing += missing.empty() ? name : StrCat(", ", name); };
  std::size_t engines = 0;
  for (const auto& [rank, policy] : policies_) {
    if (!policy.member.has_value()) {
      add(StrCat("policy rank ", rank));
    }
  }
  for (const auto& [index, slot] : slots_) {
    engines += slot.member.has_value() ? 1U : 0U;
  }
  const std::size_t needed = options_.profile.min_serving == 0 ? slots_.size() : options_.profile.min_serving;
  if (engines < std::max<std::size_t>(needed, 1)) {
    for (const auto& [index, slot] : slots_) {
      if (!slot.member.has_value()) {
        add(StrCat("engine ", index, slot.last_error.empty() ? "" : StrCat(" (", slot.last_error, ")")));
      }
    }
  }
  if (missing.empty()) {
    return OkStatus();
  }
  return Unavailable(StrCat("not registered: ", missing), "start what is missing, then sync again");
}

void Controller::StartSession(const SyncRequested& event, Instant now, ControllerEffects& out) {
  sync::SessionOptions options;
  options.profile = options_.profile;
  options.run = options_.run;
  options.attempt = {options_.term, ++attempts_};
  options.committed = committed_;
  options.version = std::max(committed_, REFIT_MUTANT("RX-ONCE-02/reuse-burned", burned_, committed_)).Next();
  options.source = event.source;
  options.deadline = now + event.budget;
  options.keep_lease = options_.keep_lease;
  for (const auto& [index, slot] : slots_) {
    options.next_seq[index] = slot.next_seq;
    if (slot.member.has_value()) {
      options.engines.push_back(*slot.member);
    }
  }
  for (const auto& [rank, policy] : policies_) {
    options.next_policy_seq[rank] = policy.next_seq;
    if (policy.member.has_value()) {
      options.policies.push_back(*policy.member);
    }
  }
  leased_.reset();  // a new lease ends the one before
  session_.emplace(std::move(options));
  waiting_ = {event.request_id};
  Forward(sync::Started{}, now, out);
}

void Controller::Forward(const sync::SessionEvent& event, Instant now, ControllerEffects& out) {
  if (session_.has_value()) {
    sync::SessionEffects effects;
    session_->Handle(event, now, effects);
    CarryOut(std::move(effects), out);
  }
}

void Controller::HandleDeadline(Instant now, ControllerEffects& out) {
  if (session_.has_value()) {
    sync::SessionEffects effects;
    session_->HandleDeadline(now, effects);
    CarryOut(std::move(effects), out);
  }
}

Instant Controller::next_deadline() const { return session_.has_value() ? session_->next_deadline() : kNever; }

sync::SessionPhase Controller::phase() const {
  return session_.has_value() ? session_->phase() : sync::SessionPhase::kIdle;
}

void Controller::CarryOut(sync::SessionEffects effects, ControllerEffects& out) {
  for (sync::SessionEffect& effect : effects) {
    if (auto* finished = std::get_if<sync::Finished>(&effect)) {
      OnFinished(finished->outcome, out);
    } else if (auto* agent = std::get_if<sync::SendToAgent>(&effect)) {
      out.emplace_back(std::move(*agent));
    } else if (auto* policy = std::get_if<sync::SendToPolicy>(&effect)) {
      out.emplace_back(std::move(*policy));
    } else {
      out.emplace_back(std::move(std::get<sync::AppendCommit>(effect)));
    }
  }
}

void Controller::OnFinished(const sync::Outcome& outcome, ControllerEffects& out) {
  session_.reset();
  if (outcome.committed || REFIT_MUTANT("RC-VER-02/version-moves-on-failure", false, true)) {
    committed_ = outcome.version;
  } else if (outcome.opened) {
    burned_ = outcome.version;
  }
  stale_ = !outcome.status.ok();
  if (options_.keep_lease && outcome.status.ok()) {
    leased_ = outcome.version;
  }
  if (outcome.latch && !latch_.has_value()) {
    latch_ = outcome.status;
  }
  for (const auto& [index, seq] : outcome.next_seq) {
    slots_[index].next_seq = std::max(slots_[index].next_seq, seq);
  }
  for (const auto& [rank, seq] : outcome.next_policy_seq) {
    policies_[rank].next_seq = std::max(policies_[rank].next_seq, seq);
  }
  for (const sync::EngineOutcome& engine : outcome.engines) {
    Slot& slot = slots_[engine.slot];
    if (!slot.member.has_value() || slot.member->incarnation != engine.incarnation) {
      continue;  // somebody else lives there by now
    }
    slot.last_error = engine.status.ok() ? "" : engine.status.ToString();
    if (engine.killed) {
      slot.member.reset();
      continue;
    }
    slot.member->residue = engine.residue;
    slot.member->serving = engine.serving;
    if (engine.residue.kind == sync::ResidueKind::kOld) {
      slot.version = engine.residue.version;
    }
  }
  for (const std::string& request_id : std::exchange(waiting_, {})) {
    out.emplace_back(SyncAnswered{request_id, outcome.status, outcome});
    if (!request_id.empty() && recorded_.emplace(request_id, Recorded{outcome.status, outcome}).second) {
      recorded_order_.push_back(request_id);
    }
  }
  if (recorded_order_.size() > kRecordedMax) {
    recorded_.erase(recorded_order_.front());
    recorded_order_.erase(recorded_order_.begin());
  }
}

void Controller::ReturnLeases(ControllerEffects& out) {
  if (!leased_.has_value() || session_.has_value()) {
    return;
  }
  for (auto& [rank, worker] : policies_) {
    if (!worker.member.has_value()) {
      continue;
    }
    sync::PolicyCommand command{.stamp = {.run = options_.run,
                                          .term = options_.term,
                                          .seq = worker.next_seq,
                                          .attempt = {options_.term, attempts_},
                                          .version = *leased_,
                                          .incarnation = worker.member->incarnation},
                                .kind = sync::PolicyCommandKind::kRelease,
                                .budget = kReleaseBudget,
                                .source = {},
                                .receivers = {}};
    worker.next_seq = worker.next_seq.Next();
    out.emplace_back(sync::SendToPolicy{rank, std::move(command)});
  }
  leased_.reset();
}

std::vector<SlotView> Controller::slots() const {
  std::vector<SlotView> views;
  for (const auto& [index, slot] : slots_) {
    SlotView view;
    view.slot = index;
    view.version = slot.version;
    view.last_error = slot.last_error;
    if (slot.member.has_value()) {
      view.incarnation = slot.member->incarnation;
      view.tp_size = slot.member->tp_size;
      view.residue = slot.member->residue;
      view.serving = slot.member->serving;
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace refit::control
