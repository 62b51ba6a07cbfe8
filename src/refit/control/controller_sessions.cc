// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// From a request to a session and back: recover, wait for the monitor, write the intent, run, write the outcome. And
// catch-ups, where nobody asks for anything.

#include <algorithm>
#include <iterator>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/control/controller.h"

namespace refit::control {
namespace {

constexpr Duration kReleaseBudget = std::chrono::seconds(10);
constexpr std::uint32_t kCatchUps = 2;  // then it waits for the next refit (RX-MEM-03)

}  // namespace

// What can go on, goes on. Called after everything that happened.
void Controller::Advance(Instant now) {
  if (stopped_) {
    return;
  }
  EndShutdown();
  AdvanceLeaving(now);
  if (latch_.has_value() || shutdown_.has_value()) {
    return;
  }
  if (session_.has_value()) {
    // A catch-up that gives way takes its time to settle; whoever waits for it has a deadline of his own.
    if (catching_up_.has_value() && request_.has_value() && now >= request_->deadline) {
      EndRequest(DeadlineExceeded("a catch-up did not settle before the deadline of the sync"), std::nullopt, now);
    }
    return;
  }
  if (request_.has_value()) {
    return AdvanceRequest(now);
  }
  StartCatchUp(now);
}

void Controller::AdvanceRequest(Instant now) {
  if (now >= request_->deadline) {
    const Status here = CheckRegistered();
    const bool began = request_->version != WeightVersion(0);  // and lost its engines (RX-COMMIT-05)
    return EndRequest(here.ok() ? DeadlineExceeded("the fleet did not settle before the deadline of the sync")
                      : began   ? here.WithContext("INSUFFICIENT")
                                : here,
                      std::nullopt, now);
  }
  const bool recovers = options_.profile.recover_when == sync::RecoverWhen::kSync;
  if ((REFIT_MUTANT("RC-REC-01/skip", recovers, false) && !Quieted(now)) || !AliveChecked() || !Recovered(now) ||
      !request_.has_value()) {
    return;
  }
  const auto is_asked = [](const auto& each) {  // what it holds, or to let go
    return each.second.adopting || (each.second.leaving.has_value() && each.second.member.has_value());
  };
  if (std::any_of(slots_.begin(), slots_.end(), is_asked)) {
    return;
  }
  if (const Status here = CheckRegistered(); !here.ok()) {
    const bool returns = REFIT_MUTANT("RX-JRNL-05/refuse-at-once", returning_until_ != kNever, false);
    if (!returns && (!options_.use_fault_tolerance || recovers)) {
      EndRequest(here, std::nullopt, now);
    }
    return;  // else somebody is being launched, or has not told this successor of itself
  }
  if (Quieted(now)) {
    StartRefit(now);
  }
}

// RC-REC-10: what died while nobody probed is found before a recovery counts empty slots.
bool Controller::AliveChecked() {
  if (!options_.use_fault_tolerance || options_.profile.recover_when == sync::RecoverWhen::kNow) {
    return true;
  }
  if (!std::exchange(request_->alive_checked, true) && REFIT_MUTANT("RC-REC-10/rely-on-the-monitor", true, false)) {
    for (auto& [index, slot] : slots_) {
      if (slot.member.has_value() && slot.errands.empty() && slot.service == Service::kIn) {
        SendErrand(index, slot, Errand::kFence, sync::AgentCommandKind::kAbort, slot.version);
      }
    }
  }
  return std::none_of(slots_.begin(), slots_.end(),
                      [](const auto& each) { return !each.second.errands.empty() || each.second.kill.has_value(); });
}

// The recovery of a sync, where slots do not recover by themselves (RC-SYNC-02, -03).
bool Controller::Recovered(Instant now) {
  if (!options_.use_fault_tolerance || options_.profile.recover_when == sync::RecoverWhen::kNow) {
    return true;
  }
  if (!recoveries_.empty()) {
    return false;
  }
  std::vector<SlotIndex> empty;
  for (const auto& [index, slot] : slots_) {
    if (slot.state == fleet::SlotState::kEmpty && !slot.adopting && slot.service == Service::kIn) {
      empty.push_back(index);
    }
  }
  if (empty.empty() || request_->recovered) {  // none empty: return at once, touching nothing (RC-REC-02)
    return true;
  }
  request_->recovered = true;
  StartRecovery(std::move(empty), now);
  return false;
}

// No probe of an engine, and no kill caused by one, is in flight, and none begins (RC-MON-04, RC-REC-01).
bool Controller::Quieted(Instant now) {
  if (options_.use_fault_tolerance && !std::exchange(request_->quieting, true)) {
    fleet::HealthEffects effects;
    for (const auto& [index, slot] : slots_) {
      if (slot.member.has_value()) {
        not_quiet_.insert(index);
        health_.Disable(index, slot.incarnation, effects);
      }
    }
    CarryOut(std::move(effects), now);
  }
  return not_quiet_.empty();
}

// Every policy worker, and as many engines as the profile must have serve the version.
Status Controller::CheckRegistered() const {
  std::size_t places = 0;
  std::size_t engines = 0;
  for (const auto& [index, slot] : slots_) {
    const bool counts = slot.state != fleet::SlotState::kRetired && slot.service == Service::kIn;
    places += counts ? 1U : 0U;
    engines += counts && slot.member.has_value() ? 1U : 0U;
  }
  if (places == 0 || policies_.empty()) {
    return FailedPrecondition(
        StrCat("the job has ", places, " engines in service and ", policies_.size(), " policy ranks"),
        "configure at least one of each, or `refit engine add`");
  }
  std::string missing;
  const auto add = [&missing](const std::string& name) { missing += missing.empty() ? name : StrCat(", ", name); };
  for (const auto& [rank, policy] : policies_) {
    if (!policy.member.has_value()) {
      add(StrCat("policy rank ", rank));
    }
  }
  const std::size_t needed = options_.profile.min_serving == 0 ? places : options_.profile.min_serving;
  if (engines < std::max<std::size_t>(needed, 1)) {
    for (const auto& [index, slot] : slots_) {
      if (!slot.member.has_value() && slot.state != fleet::SlotState::kRetired && slot.service == Service::kIn) {
        add(StrCat("engine ", index, slot.last_error.empty() ? "" : StrCat(" (", slot.last_error, ")")));
      }
    }
  }
  if (missing.empty()) {
    return OkStatus();
  }
  return Unavailable(StrCat("not registered: ", missing), "start what is missing, then sync again");
}

// ---- sessions

sync::SessionOptions Controller::MakeSession() {
  sync::SessionOptions options;
  options.profile = options_.profile;
  options.run = options_.run;
  options.attempt = {options_.term, ++attempts_};
  options.committed = committed_;
  options.keep_lease = options_.keep_lease;
  options.stall_deadline = options_.stall_deadline;
  options.min_rate = options_.min_rate;
  options.rate_window = options_.rate_window;
  options.redo_safe = options_.redo_safe;
  options.seed = prng_.Next();
  for (const auto& [index, slot] : slots_) {
    options.next_seq[index] = slot.next_seq;
  }
  for (const auto& [rank, policy] : policies_) {
    options.next_policy_seq[rank] = policy.next_seq;
    if (policy.member.has_value()) {
      options.policies.push_back(*policy.member);
    }
  }
  leased_.reset();  // a new lease ends the one before
  return options;
}

void Controller::StartRefit(Instant now) {
  if (request_->version == WeightVersion(0)) {
    request_->version = std::max(committed_, REFIT_MUTANT("RX-ONCE-02/reuse-burned", burned_, committed_)).Next();
  }
  if (REFIT_MUTANT("RC-SYNC-04/consume-first", false, true)) {
    unbound_.clear();
  }
  sync::SessionOptions options = MakeSession();
  options.version = request_->version;
  options.source = request_->source;
  options.deadline = request_->deadline;
  for (auto& [index, slot] : slots_) {
    slot.catch_ups = 0;
    if (slot.member.has_value() && REFIT_MUTANT("RX-MEM-04/refit-the-drained", slot.service == Service::kIn, true)) {
      options.engines.push_back(*slot.member);
    } else if (slot.in_traffic) {
      options.outside.emplace_back(index, slot.incarnation);
      if (slot.spared) {
        LeaveTraffic(index, slot, now);
      }
    }
  }
  Write(IntentRecord{request_->id, options.version, options.attempt, options.source}, now);
  session_.emplace(std::move(options));
  Forward(sync::Started{}, now);
}

bool Controller::MayCatchUp(const Slot& slot) const {
  using fleet::SlotState;
  const bool behind = slot.state == SlotState::kStale || slot.state == SlotState::kBound ||
                      slot.state == SlotState::kComplete || slot.state == SlotState::kPaused;
  return slot.member.has_value() && behind && slot.service == Service::kIn && !slot.leaving.has_value() &&
         !slot.adopting && slot.errands.empty() && slot.catch_ups < kCatchUps;
}

// Brings one engine that is behind to what is committed, from a policy worker that can still read it (C13).
void Controller::StartCatchUp(Instant now) {
  const bool wanted = options_.catch_up_budget > Duration(0) && committed_ > WeightVersion(0) && !poisoned_;
  const bool readable = !policies_.empty() && std::all_of(policies_.begin(), policies_.end(), [](const auto& each) {
    return each.second.member.has_value() && each.second.member->retains;
  });
  if (!wanted || !readable || leased_.has_value()) {
    return;
  }
  for (auto& [index, slot] : slots_) {
    if (!MayCatchUp(slot) || RecoveryOf(index) != nullptr) {
      continue;
    }
    ++slot.catch_ups;
    sync::SessionOptions options = MakeSession();
    options.kind = sync::SessionKind::kCatchUp;
    options.version = committed_;
    options.digest = committed_digest_;
    options.source = committed_source_;
    options.deadline = now + options_.catch_up_budget;
    options.keep_lease = false;
    options.engines.push_back(*slot.member);
    catching_up_ = index;
    session_.emplace(std::move(options));
    return Forward(sync::Started{}, now);
  }
}

void Controller::Forward(const sync::SessionEvent& event, Instant now) {
  if (session_.has_value()) {
    sync::SessionEffects effects;
    session_->Handle(event, now, effects);
    CarryOut(std::move(effects), now);
  }
}

// In the order in which the session made them, also where carrying one out makes it say more.
void Controller::CarryOut(sync::SessionEffects effects, Instant now) {
  std::move(effects.begin(), effects.end(), std::back_inserter(session_effects_));
  if (std::exchange(carrying_out_, true)) {
    return;
  }
  while (!session_effects_.empty() && !stopped_) {
    sync::SessionEffect effect = std::move(session_effects_.front());
    session_effects_.pop_front();
    CarryOut(std::move(effect), now);
  }
  carrying_out_ = false;
}

void Controller::CarryOut(sync::SessionEffect effect, Instant now) {
  if (auto* finished = std::get_if<sync::Finished>(&effect)) {
    OnFinished(finished->outcome, now);
  } else if (auto* agent = std::get_if<sync::SendToAgent>(&effect)) {
    slots_.at(agent->slot).next_seq = agent->command.stamp.seq.Next();
    fresh_.emplace_back(std::move(*agent));
  } else if (auto* policy = std::get_if<sync::SendToPolicy>(&effect)) {
    policies_.at(policy->rank).next_seq = policy->command.stamp.seq.Next();
    fresh_.emplace_back(std::move(*policy));
  } else if (auto* commit = std::get_if<sync::AppendCommit>(&effect)) {
    OnCommit(*commit, now);
  } else if (auto* aborted = std::get_if<sync::AttemptAborted>(&effect)) {
    attempts_ = std::max(attempts_, aborted->next.n);
    if (!catching_up_.has_value()) {
      Write(AbortedRecord{aborted->attempt, request_->version, aborted->opened}, now);
      Write(IntentRecord{request_->id, request_->version, aborted->next, request_->source}, now);
    }
  } else if (auto* quarantine = std::get_if<sync::Quarantine>(&effect)) {
    Lose(quarantine->slot, quarantine->incarnation, Unavailable(quarantine->reason), Death::kWanted, now);
  } else if (auto* moved = std::get_if<sync::SlotMoved>(&effect)) {
    Slot& slot = slots_.at(moved->slot);
    if (moved->state == fleet::SlotState::kServing) {
      EnterServing(moved->slot, slot, now);
    } else if (slot.state != moved->state && fleet::IsSlotArrow(slot.state, moved->state)) {
      Enter(moved->slot, slot, moved->state);  // what was never SERVING is never PAUSED either
    }
  } else {
    const auto& bound = std::get<sync::Bound>(effect);
    Slot& slot = slots_.at(bound.slot);
    BindRecord record{bound.slot, slot.incarnation, {}};
    for (const sync::StreamSource& link : bound.links) {
      record.policies.emplace_back(link.policy, link.incarnation);
    }
    if (slot.member.has_value()) {
      slot.member->links = bound.links;
    }
    unbound_.erase(bound.slot);
    Write(std::move(record), now);
  }
}

void Controller::OnCommit(const sync::AppendCommit& commit, Instant now) {
  Record record;
  if (catching_up_.has_value()) {
    record = SlotRecord{*catching_up_, slots_.at(*catching_up_).incarnation, fleet::SlotState::kServing, "caught up"};
  } else {
    CommitRecord decided{request_->id, commit.version, commit.digest, request_->source, {}, commit.excluded};
    for (const sync::Member& member : commit.members) {
      decided.members.push_back({member.slot, member.incarnation, member.attempt});
    }
    deciding_ = decided;
    record = std::move(decided);
  }
  commit_append_ = next_append_;
  Write(std::move(record), now);
}

// From here on the version is published.
void Controller::OnCommitted(Instant now) {
  if (std::optional<CommitRecord> decided = std::exchange(deciding_, std::nullopt); decided.has_value()) {
    committed_ = decided->version;
    committed_digest_ = decided->digest;
    committed_source_ = decided->source;
    members_.clear();
    for (const CommitMember& member : decided->members) {
      members_.emplace(member.slot, member);
    }
    // What does not hold it is not routed any more, whether or not it is paused.
    for (auto& [index, slot] : slots_) {
      const auto member = members_.find(index);
      if (slot.in_traffic && (member == members_.end() || member->second.incarnation != slot.incarnation)) {
        LeaveTraffic(index, slot, now);
      }
    }
  }
  Forward(sync::CommitAppended{OkStatus()}, now);
}

void Controller::OnFinished(const sync::Outcome& outcome, Instant now) {
  session_.reset();
  const std::optional<SlotIndex> caught_up = std::exchange(catching_up_, std::nullopt);
  attempts_ = std::max(attempts_, outcome.attempt.n);
  poisoned_ = poisoned_ || outcome.deaths_in_update;
  for (const sync::EngineOutcome& engine : outcome.engines) {
    Slot& slot = slots_.at(engine.slot);
    if (outcome.systemic && engine.killed) {  // charged already, or when its kill has ended
      if (slot.charged != engine.incarnation) {
        slot.spare_charge = true;
      } else {
        slot.budget.Refund();
      }
    }
    if (!slot.member.has_value() || slot.incarnation != engine.incarnation) {
      continue;  // somebody else lives there by now
    }
    slot.last_error = engine.status.ok() ? "" : engine.status.ToString();
    slot.member->residue = engine.residue;
    slot.member->serving = engine.serving;
    slot.member->attempt = outcome.attempt;
    if (engine.residue.kind == sync::ResidueKind::kOld) {
      slot.version = engine.residue.version;
    }
  }
  if (caught_up.has_value()) {
    return;
  }
  if (!outcome.committed && !outcome.in_doubt) {
    burned_ = outcome.opened ? std::max(burned_, outcome.version) : burned_;
    Write(AbortedRecord{outcome.attempt, outcome.version, outcome.opened}, now);
  }
  if (REFIT_MUTANT("RC-VER-02/version-moves-on-failure", false, !outcome.committed)) {
    committed_ = outcome.version;
  }
  stale_ = !outcome.status.ok();
  if (options_.keep_lease && outcome.status.ok()) {
    leased_ = outcome.version;
  }
  if (outcome.latch) {
    Latch(outcome.status, now);
  }
  if (outcome.in_doubt) {
    return StopActing(kExitJournalInDoubt, outcome.status);
  }
  const bool again = outcome.insufficient && !outcome.systemic && !outcome.latch && now < request_->deadline &&
                     options_.use_fault_tolerance && options_.profile.recover_when == sync::RecoverWhen::kNow;
  if (!again) {  // else the fleet recovers meanwhile, and the request goes on until its deadline (RX-COMMIT-05)
    EndRequest(outcome.status, outcome, now);
  }
}

void Controller::On(const HashesTaken& /*event*/, Instant /*now*/) {
  if (!session_.has_value()) {
    GiveBackLeases();
  }
}

void Controller::GiveBackLeases() {
  if (!leased_.has_value()) {
    return;
  }
  for (auto& [rank, worker] : policies_) {
    if (worker.member.has_value()) {
      SendErrand(rank, worker, sync::PolicyCommandKind::kRelease, *leased_, kReleaseBudget);
    }
  }
  leased_.reset();
}

// Who differs is quarantined. Where all differ alike, what was expected may be what is wrong (RX-QUAR-05).
void Controller::On(const HashesCompared& event, Instant now) {
  if (event.version != committed_ || options_.profile.on_engine_loss != sync::OnEngineLoss::kDetach) {
    return;  // of an earlier version; or a profile that only reports
  }
  const bool alike =
      event.engines.size() > 1 && std::all_of(event.engines.begin(), event.engines.end(), [&event](const auto& engine) {
        return engine.difference.has_value() && engine.difference == event.engines.front().difference;
      });
  if (REFIT_MUTANT("RX-SUM-03/kill-all", alike, false)) {
    return;
  }
  for (const HashesCompared::Engine& engine : event.engines) {
    const auto slot = slots_.find(engine.slot);
    const bool serves = slot != slots_.end() && slot->second.version == event.version;
    if (serves && REFIT_MUTANT("RX-SUM-03/only-report", engine.difference.has_value(), false)) {
      Lose(engine.slot, engine.incarnation, DataLoss(StrCat("it serves other weights than version ", event.version)),
           Death::kWanted, now);
    }
  }
}

sync::SessionPhase Controller::phase() const {
  return session_.has_value() ? session_->phase() : sync::SessionPhase::kIdle;
}

}  // namespace refit::control
