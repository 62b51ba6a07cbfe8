// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Events in, effects out: requests, the gate that lets no effect out before its record is written, the latch.

#include "refit/control/controller.h"

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::control {
namespace {

// A caller asks again within minutes of a lost reply, not after this many other syncs.
constexpr std::size_t kRecordedMax = 64;
// Bounds of what can pile up (RX-TIME-04). Nobody waits for one answer in so many places; a disk that is so many
// records behind does not come back within its deadline.
constexpr std::size_t kAskersMax = 64;
constexpr std::size_t kAppendsMax = 4096;
constexpr Duration kReturnBudget = std::chrono::seconds(10);  // members register several times a second

}  // namespace

Controller::Controller(ControllerOptions options, const JournalState* recovered)
    : options_(std::move(options)),
      prng_(options_.seed),
      health_([this] {
        fleet::HealthOptions health = options_.health;
        health.probe_failures = options_.profile.probe_failures;
        return health;
      }()),
      router_(options_.router) {
  for (const PolicyRank rank : options_.policy_ranks) {
    policies_[rank];
  }
  for (const SlotIndex index : options_.slots) {
    slots_.emplace(index, Slot(options_.restarts));
  }
  if (recovered == nullptr) {
    return;
  }
  succeeds_ = true;
  committed_ = recovered->committed;
  committed_digest_ = recovered->digest;
  burned_ = recovered->burned;
  attempts_ = recovered->term == options_.term ? recovered->attempts : 0;
  latch_ = REFIT_MUTANT("RC-TERM-07/memory-only", recovered->latch, std::optional<Status>());
  if (const auto commit = recovered->commits.find(committed_); commit != recovered->commits.end()) {
    committed_source_ = commit->second.source;
    for (const CommitMember& member : commit->second.members) {
      members_.emplace(member.slot, member);
    }
  }
  for (const auto& [id, outcome] : recovered->outcomes) {
    recorded_.emplace(id, Recorded{outcome.status, std::nullopt});
    recorded_order_.push_back(id);
  }
  if (recovered->intent.has_value()) {
    const IntentRecord& intent = *recovered->intent;
    if (intent.version > committed_) {
      burned_ = std::max(burned_, intent.version);  // somebody may have been opened under it
    }
  }
  for (const auto& [index, known] : recovered->slots) {
    const auto found = slots_.try_emplace(index, Slot(options_.restarts)).first;
    Slot& slot = found->second;
    slot.incarnation = known.incarnation;
    const bool over = known.state == fleet::SlotState::kQuarantined || known.state == fleet::SlotState::kKilling ||
                      known.state == fleet::SlotState::kZombie;
    if (over) {  // that life is over (C14); whether it is dead nobody knows yet
      slot.state = options_.use_fault_tolerance ? fleet::SlotState::kZombie : fleet::SlotState::kKilling;
    } else {
      slot.adopting = known.state != fleet::SlotState::kEmpty;
    }
    // Whoever lives there says so itself; until then it may still be in traffic.
    slot.in_traffic = (slot.adopting || over) && options_.use_router && !known.incarnation.is_zero();
  }
  for (const SlotIndex index : recovered->retired) {
    Slot& slot = slots_.try_emplace(index, Slot(options_.restarts)).first->second;
    slot.state = fleet::SlotState::kRetired;
    slot.adopting = false;
  }
  for (const auto& [index, service] : recovered->services) {
    Slot& slot = slots_.try_emplace(index, Slot(options_.restarts)).first->second;
    slot.service = service;
    if (service != Service::kIn && slot.state != fleet::SlotState::kRetired) {  // what was begun is ended
      slot.leaving.emplace(Leaving{.action = service == Service::kOut ? SlotAction::kDrain : SlotAction::kRemove,
                                   .grace = options_.command_budget});
    }
  }
  if (recovered->intent.has_value() && recovered->commits.contains(recovered->intent->version)) {
    // Decided: success, whatever became of single activations (RX-COMMIT-06).
    const IntentRecord& intent = *recovered->intent;
    owed_ = OutcomeRecord{intent.request_id, intent.version, true, OkStatus()};
    recorded_[intent.request_id] = Recorded{OkStatus(), std::nullopt};
    recorded_order_.push_back(intent.request_id);
  }
}

void Controller::Start(Instant now, ControllerEffects& out) {
  if (owed_.has_value()) {
    Write(*std::exchange(owed_, std::nullopt), now);
  }
  if (options_.term_check_interval > Duration(0)) {
    term_check_at_ = now;
  }
  if (succeeds_) {
    returning_until_ = now + kReturnBudget;
  }
  if (options_.use_router) {
    router_.Start(now);
  }
  if (options_.use_fault_tolerance) {
    health_.Start(now);
  }
  for (auto& [index, slot] : slots_) {
    // A member serves what is committed, or is paused: whoever sends requests need not notice this controller's start.
    const auto member = members_.find(index);
    slot.spared = slot.in_traffic && slot.adopting && member != members_.end() &&
                  member->second.incarnation == slot.incarnation && slot.service == Service::kIn &&
                  REFIT_MUTANT("RC-RTR-04/successor-empties-it", true, false);
    if (slot.in_traffic && !slot.spared) {
      LeaveTraffic(index, slot, now);
    }
    if (slot.state == fleet::SlotState::kZombie) {
      slot.launch_at = now;  // its kill is tried again
    }
    if (slot.state != fleet::SlotState::kEmpty) {
      continue;
    }
    if (slot.adopting) {
      slot.expected_until = now + options_.launch_budget;
    } else if (options_.use_fault_tolerance && options_.profile.recover_when == sync::RecoverWhen::kNow &&
               slot.service == Service::kIn) {
      slot.launch_at = now;
    }
  }
  Tick(now);
  Advance(now);
  Flush(out);
}

void Controller::Handle(const ControllerEvent& event, Instant now, ControllerEffects& out) {
  if (stopped_) {
    return;
  }
  std::visit([this, now](const auto& one) { On(one, now); }, event);
  Advance(now);
  Flush(out);
}

void Controller::On(const sync::SessionEvent& event, Instant now) {
  if (const auto* replied = std::get_if<sync::AgentReplied>(&event)) {
    OnAgentReplied(*replied, now);
  } else if (const auto* lost = std::get_if<sync::AgentLost>(&event)) {
    Lose(lost->slot, lost->incarnation, lost->status, Death::kUnreachable, now);
  } else if (const auto* answered = std::get_if<sync::PolicyReplied>(&event);
             answered == nullptr || !Superseded(answered->reply.highest_term)) {
    Forward(event, now);
  }
}

void Controller::On(const TermChecked& event, Instant /*now*/) { static_cast<void>(Superseded(event.term)); }

void Controller::HandleDeadline(Instant now, ControllerEffects& out) {
  if (stopped_) {
    return;
  }
  if (!appends_.empty() && appends_.front().deadline <= now) {
    StopActing(kExitJournalInDoubt, DeadlineExceeded("a record of the journal was not confirmed in time"));
    return Flush(out);
  }
  if (session_.has_value() && session_->next_deadline() <= now) {
    sync::SessionEffects effects;
    session_->HandleDeadline(now, effects);
    CarryOut(std::move(effects), now);
  }
  Tick(now);
  Advance(now);
  Flush(out);
}

Instant Controller::next_deadline() const {
  if (stopped_) {
    return kNever;
  }
  Instant next = session_.has_value() ? session_->next_deadline() : kNever;
  next = std::min({next, health_.next_deadline(), options_.use_router ? router_.next_deadline() : kNever});
  if (!appends_.empty()) {
    next = std::min(next, appends_.front().deadline);
  }
  if (request_.has_value() && (!session_.has_value() || catching_up_.has_value())) {
    next = std::min(next, request_->deadline);
  }
  next = std::min({next, term_check_at_, returning_until_});
  for (const fleet::Recovery& recovery : recoveries_) {
    next = std::min(next, recovery.next_deadline());
  }
  for (const auto& [index, slot] : slots_) {
    if (slot.leaving.has_value() && !slot.leaving->holding) {
      next = std::min(next, slot.leaving->until);
    }
    next = std::min({next, slot.expected_until, latch_.has_value() ? kNever : slot.launch_at,
                     slot.kill.has_value() ? slot.kill->next_deadline() : kNever});
  }
  return next;
}

// ---- one request at a time

void Controller::On(const SyncRequested& event, Instant now) {
  if (event.request_id.empty()) {
    fresh_.emplace_back(SyncAnswered{event.request_id,
                                     InvalidArgument("a sync without a request id", "give each sync an id of its own"),
                                     std::nullopt});
    return;
  }
  if (latch_.has_value() && REFIT_MUTANT("RC-TERM-02/latch-not-checked", true, false)) {
    fresh_.emplace_back(SyncAnswered{
        event.request_id,
        FailedPrecondition(StrCat("terminal: an earlier sync of this run failed for good: ", latch_->ToString()),
                           "restart the engines and the controller"),
        std::nullopt});
    return;
  }
  if (shutdown_.has_value()) {
    fresh_.emplace_back(SyncAnswered{
        event.request_id, ResourceExhausted("busy: a shutdown is running", "wait until it has ended"), std::nullopt});
    return;
  }
  if (request_.has_value() && REFIT_MUTANT("RC-SYNC-07/no-guard", true, false)) {
    if (request_->id == event.request_id && request_->waiting.size() < kAskersMax) {
      request_->waiting.push_back(event.request_id);  // the same request again: both get the answer
      return;
    }
    fresh_.emplace_back(
        SyncAnswered{event.request_id,
                     ResourceExhausted(StrCat("busy: sync ", request_->id, " is running"), "wait until it has ended"),
                     std::nullopt});
    return;
  }
  if (const auto recorded = recorded_.find(event.request_id);
      recorded != recorded_.end() && REFIT_MUTANT("RX-ONCE-01/run-twice", true, false)) {
    fresh_.emplace_back(SyncAnswered{event.request_id, recorded->second.status, recorded->second.outcome});
    return;
  }
  stale_ = REFIT_MUTANT("RC-SYNC-01/clear-early", true, false);
  poisoned_ = false;
  request_ = Request{.id = event.request_id,
                     .source = event.source,
                     .deadline = now + event.budget,
                     .waiting = {event.request_id},
                     .version = {}};
  if (catching_up_.has_value()) {  // it gives way, and its engine is taken in (C13)
    Forward(sync::Cancelled{Aborted("a sync takes the engine in")}, now);
  }
}

void Controller::On(const SyncCancelled& event, Instant now) {
  if (!request_.has_value() || request_->id != event.request_id) {
    return;
  }
  const Status status(StatusCode::kCancelled, StrCat("sync ", event.request_id, " was cancelled"));
  if (session_.has_value() && !catching_up_.has_value()) {
    return Forward(sync::Cancelled{status}, now);
  }
  for (fleet::Recovery& recovery : recoveries_) {
    if (options_.profile.recover_when == sync::RecoverWhen::kSync) {
      fleet::RecoveryEffects effects;
      recovery.Cancel(status, effects);
      CarryOut(std::move(effects), now);
    }
  }
  if (request_.has_value()) {
    EndRequest(status, std::nullopt, now);
  }
}

void Controller::EndRequest(const Status& status, const std::optional<sync::Outcome>& outcome, Instant now) {
  const Request request = *std::exchange(request_, std::nullopt);
  if (options_.use_fault_tolerance && !latch_.has_value()) {
    for (const auto& [index, slot] : slots_) {
      if (slot.state == fleet::SlotState::kServing &&
          !slot.leaving.has_value()) {  // whatever is paused stays unprobed (RC-MON-11)
        health_.Enable(index, slot.incarnation, now);
      }
    }
  }
  if (request.version != WeightVersion(0)) {
    // What it came to is durable before anybody is told (INV-7).
    if (REFIT_MUTANT("RX-JRNL-01/tell-before-writing", true, false)) {
      Write(OutcomeRecord{request.id, request.version, outcome.has_value() && outcome->committed, status}, now);
    }
    if (recorded_.emplace(request.id, Recorded{status, outcome}).second) {
      recorded_order_.push_back(request.id);
    }
  }
  if (recorded_order_.size() > kRecordedMax) {
    recorded_.erase(recorded_order_.front());
    recorded_order_.erase(recorded_order_.begin());
  }
  for (const std::string& id : request.waiting) {
    fresh_.emplace_back(SyncAnswered{id, status, outcome});
  }
}

// ---- shutdown

void Controller::On(const ShutdownRequested& event, Instant /*now*/) {
  if (latch_.has_value() && REFIT_MUTANT("RC-TERM-04/finalise", true, false)) {
    // What the links are in is not known: nothing is called, and nothing counts as ready any more.
    for (auto& [index, slot] : slots_) {
      if (slot.member.has_value()) {
        slot.member->links.clear();
        unbound_.insert(index);
      }
    }
    fresh_.emplace_back(ShutdownAnswered{event.request_id, OkStatus()});
    return;
  }
  if (request_.has_value() || session_.has_value() || shutdown_.has_value()) {
    fresh_.emplace_back(ShutdownAnswered{
        event.request_id,
        ResourceExhausted("busy: a sync, a catch-up or a shutdown is running", "wait until it has ended")});
    return;
  }
  GiveBackLeases();
  for (auto& [index, slot] : slots_) {
    if (slot.member.has_value() && REFIT_MUTANT("RC-TERM-05/twice", !slot.member->links.empty(), true)) {
      SendErrand(index, slot, Errand::kUnbind, sync::AgentCommandKind::kBind, slot.version);  // to nobody
    }
  }
  shutdown_ = Shutdown{event.request_id, {}};  // answered as soon as nobody has to close anything
}

void Controller::EndShutdown() {
  if (!shutdown_.has_value()) {
    return;
  }
  for (const auto& [index, slot] : slots_) {
    for (const auto& [seq, errand] : slot.errands) {
      if (errand == Errand::kUnbind) {
        return;
      }
    }
  }
  const Shutdown ended = *std::exchange(shutdown_, std::nullopt);
  fresh_.emplace_back(ShutdownAnswered{ended.id, ended.status});
}

// ---- the journal's gate

void Controller::Write(Record record, Instant now) {
  if (appends_.size() >= REFIT_MUTANT("RX-TIME-04/unbounded-journal", kAppendsMax, SIZE_MAX)) {
    return StopActing(kExitJournalInDoubt,
                      ResourceExhausted(StrCat(appends_.size(), " records wait to be written"), "look at the disk"));
  }
  appends_.push_back({next_append_, now + options_.append_deadline});
  fresh_.emplace_back(Append{next_append_++, std::move(record)});
}

void Controller::On(const Appended& event, Instant now) {
  if (appends_.empty() || appends_.front().append != event.append) {
    return;
  }
  if (!event.status.ok()) {
    return StopActing(kExitJournalInDoubt, event.status.WithContext("the journal is in doubt"));
  }
  appends_.pop_front();
  if (event.append == commit_append_) {
    OnCommitted(now);
  }
}

// Nothing leaves before what stands in front of it is written.
void Controller::Flush(ControllerEffects& out) {
  const std::uint64_t confirmed = appends_.empty() ? next_append_ - 1 : appends_.front().append - 1;
  while (!held_.empty() && held_.front().first <= confirmed) {
    out.push_back(std::move(held_.front().second));
    held_.pop_front();
  }
  std::uint64_t behind = last_sent_append_;
  for (ControllerEffect& effect : std::exchange(fresh_, {})) {
    const auto* append = std::get_if<Append>(&effect);
    if (append != nullptr) {
      behind = append->append > confirmed ? append->append : behind;
    }
    const bool waits = append == nullptr && behind > confirmed && !std::holds_alternative<SlotChanged>(effect) &&
                       !std::holds_alternative<Stop>(effect);
    if (waits && REFIT_MUTANT("RX-JRNL-01/effect-first", true, false)) {
      held_.emplace_back(behind, std::move(effect));
    } else {
      out.push_back(std::move(effect));
    }
  }
  last_sent_append_ = next_append_ - 1;
}

// ---- the end

void Controller::Latch(const Status& status, Instant now) {
  if (latch_.has_value()) {
    return;  // the first one wins (RC-TERM-02)
  }
  latch_ = status;
  Write(LatchRecord{status}, now);
}

// Whether somebody has seen a later controller: then this one may not act any more, nor write (RX-LEAD-04).
bool Controller::Superseded(Term highest_term) {
  if (highest_term <= options_.term || REFIT_MUTANT("RX-LEAD-04/keep-going", false, true)) {
    return false;
  }
  StopActing(kExitSuperseded,
             Aborted(StrCat("a controller of term ", highest_term, " has taken over, this is term ", options_.term)));
  return true;
}

void Controller::StopActing(int exit_code, const Status& status) {
  // Whoever was to be told what is not confirmed, and whoever still waits.
  std::vector<std::string> waiting = request_.has_value() ? request_->waiting : std::vector<std::string>();
  const auto add = [&waiting](const ControllerEffect& effect) {
    if (const auto* answer = std::get_if<SyncAnswered>(&effect); answer != nullptr) {
      waiting.push_back(answer->request_id);
    }
  };
  std::for_each(fresh_.begin(), fresh_.end(), add);
  std::for_each(held_.begin(), held_.end(), [&add](const auto& each) { add(each.second); });
  fresh_.clear();
  held_.clear();
  stopped_ = true;
  for (const std::string& id : waiting) {
    fresh_.emplace_back(SyncAnswered{
        id, Aborted(StrCat("IN_DOUBT: ", status.message()), "ask again with the same request id"), std::nullopt});
  }
  fresh_.emplace_back(Stop{exit_code, status});
  // These go out although an append is not confirmed: they say so.
  appends_.clear();
}

}  // namespace refit::control
