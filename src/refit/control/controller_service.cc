// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Slots that people add, drain, remove and restart (contract II.13). Leaving goes step by step, each time that anything
// happened: out of the router, requests in flight end or their grace does, HOLD, and then what was asked for. A refit
// cuts the grace short: it aborts everybody's requests in flight. What a controller has begun, its successor ends.

#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/control/controller.h"

namespace refit::control {
namespace {

using fleet::SlotState;

constexpr std::size_t kLeavingAskersMax = 64;  // nobody waits for one answer in so many places (RX-TIME-04)

std::string_view Doing(SlotAction action) {
  switch (action) {
    case SlotAction::kAdd: return "added";
    case SlotAction::kDrain: return "drained";
    case SlotAction::kRemove: return "removed";
    case SlotAction::kRestart: return "restarted";
  }
  return "?";
}

Status Retired(SlotIndex index) {
  return FailedPrecondition(StrCat("engine slot ", index, " is retired, and its number is never used again in a run"),
                            "add another number");
}

}  // namespace

std::string Controller::ServiceText(const Slot& slot) {
  if (slot.leaving.has_value()) {
    switch (slot.leaving->action) {
      case SlotAction::kAdd: break;
      case SlotAction::kDrain: return "draining";
      case SlotAction::kRemove: return "removing";
      case SlotAction::kRestart: return "restarting";
    }
  }
  return std::string(ToString(slot.service));
}

void Controller::On(const SlotRequested& event, Instant now) {
  const auto answer = [this, &event](const Status& status) {
    if (!event.request_id.empty()) {
      fresh_.emplace_back(SlotAnswered{event.request_id, status});
    }
  };
  if (latch_.has_value()) {
    return answer(FailedPrecondition(StrCat("terminal: a sync of this run failed for good: ", latch_->ToString()),
                                     "restart the engines and the controller"));
  }
  if (event.action == SlotAction::kAdd) {
    return answer(PutInService(event.slot, now));
  }
  const auto found = slots_.find(event.slot);
  if (found == slots_.end()) {
    return answer(NotFound(StrCat("the fleet has no engine slot ", event.slot), "see `refit status`"));
  }
  Slot& slot = found->second;
  if (slot.state == SlotState::kRetired) {
    return answer(event.action == SlotAction::kRemove ? OkStatus() : Retired(event.slot));
  }
  const bool joins = slot.leaving.has_value() && slot.leaving->action == event.action &&
                     slot.leaving->waiting.size() < kLeavingAskersMax;
  if (joins) {
    slot.leaving->waiting.push_back(event.request_id);
    return;
  }
  if (slot.leaving.has_value() && (event.action != SlotAction::kRemove || slot.service == Service::kLeaving)) {
    return answer(ResourceExhausted(StrCat("busy: engine slot ", event.slot, " is being ", Doing(slot.leaving->action)),
                                    "wait until that has ended"));
  }
  if (event.action == SlotAction::kRestart && (slot.attached || slot.service != Service::kIn)) {
    return answer(slot.attached ? FailedPrecondition(StrCat("engine ", event.slot, " is attached: not ours to start"),
                                                     "restart it where it was started")
                                : FailedPrecondition(StrCat("engine slot ", event.slot, " is drained"),
                                                     StrCat("refit engine add ", event.slot)));
  }
  TakeOut(event.slot, slot, event, now);
}

// RX-MEM-05: a number is never used again in a run.
Status Controller::PutInService(SlotIndex index, Instant now) {
  const auto [found, added] = slots_.try_emplace(index, Slot(options_.restarts));
  Slot& slot = found->second;
  if (REFIT_MUTANT("RX-MEM-05/reuse", slot.state == SlotState::kRetired, false)) {
    return Retired(index);
  }
  if (slot.leaving.has_value()) {
    return ResourceExhausted(StrCat("busy: engine slot ", index, " is being ", Doing(slot.leaving->action)),
                             "wait until that has ended");
  }
  if (!added && slot.service == Service::kIn) {
    return OkStatus();
  }
  slot.service = Service::kIn;
  slot.catch_ups = 0;
  Write(ServiceRecord{index, Service::kIn}, now);
  if (options_.use_fault_tolerance && options_.profile.recover_when == sync::RecoverWhen::kNow &&
      slot.state == SlotState::kEmpty && RecoveryOf(index) == nullptr) {
    slot.launch_at = now;
  }
  return OkStatus();
}

void Controller::TakeOut(SlotIndex index, Slot& slot, const SlotRequested& event, Instant now) {
  if (slot.leaving.has_value()) {
    EndLeaving(slot, Aborted(StrCat("engine slot ", index, " is removed instead")));
  }
  slot.leaving.emplace(Leaving{.action = event.action, .grace = event.grace});
  if (!event.request_id.empty()) {
    slot.leaving->waiting.push_back(event.request_id);
  }
  if (event.action != SlotAction::kRestart) {
    slot.service = event.action == SlotAction::kDrain ? Service::kOut : Service::kLeaving;
    Write(ServiceRecord{index, slot.service}, now);
  }
  if (catching_up_ == index) {
    Forward(sync::Cancelled{Aborted(StrCat("the engine is ", Doing(event.action)))}, now);
  }
}

void Controller::AdvanceLeaving(Instant now) {
  for (auto& [index, slot] : slots_) {
    const bool in_session = session_.has_value() && (!catching_up_.has_value() || catching_up_ == index);
    if (!slot.leaving.has_value() || slot.adopting || in_session) {
      continue;
    }
    if (slot.member.has_value()) {
      Drain(index, slot, now);
    } else {
      LeaveWithoutLife(index, slot, now);
    }
  }
}

void Controller::Drain(SlotIndex index, Slot& slot, Instant now) {
  Leaving& leaving = *slot.leaving;
  if (leaving.until == kNever) {
    if (!slot.errands.empty()) {
      return;
    }
    leaving.until = now + leaving.grace;
    fleet::HealthEffects effects;
    health_.Disable(index, slot.incarnation, effects);  // a probe is a request
    CarryOut(std::move(effects), now);
    LeaveTraffic(index, slot, now);
  }
  if (!slot.in_traffic && !std::exchange(leaving.asked, true)) {
    fresh_.emplace_back(DrainEngine{index, slot.incarnation, leaving.until - now});
  }
  const bool over = leaving.idle || now >= leaving.until || request_.has_value();
  if (REFIT_MUTANT("RX-MEM-04/kill", over, true) && !std::exchange(leaving.holding, true)) {
    SendErrand(index, slot, Errand::kHold, sync::AgentCommandKind::kHold, WeightVersion(0));
  }
}

void Controller::On(const DrainEnded& event, Instant /*now*/) {
  const auto found = slots_.find(event.slot);
  if (found != slots_.end() && found->second.incarnation == event.incarnation && found->second.leaving.has_value()) {
    found->second.leaving->idle = event.status.ok();
  }
}

// It answers nobody any more.
void Controller::OnHeld(SlotIndex index, Slot& slot, Instant now) {
  slot.in_traffic = false;
  if (slot.state == SlotState::kServing) {
    Enter(index, slot, SlotState::kPaused);
  }
  const SlotAction action = slot.leaving->action;
  if (action == SlotAction::kDrain) {
    return EndLeaving(slot, OkStatus());
  }
  const bool restarts = action == SlotAction::kRestart;
  Lose(index, slot.incarnation, Aborted(restarts ? "it is restarted" : "the slot is removed"), Death::kWanted, now);
  slot.spare_charge = REFIT_MUTANT("RX-QUAR-04/charge-a-restart", restarts, false);
}

void Controller::LeaveWithoutLife(SlotIndex index, Slot& slot, Instant now) {
  switch (slot.leaving->action) {
    case SlotAction::kAdd: return;
    case SlotAction::kDrain: slot.launch_at = slot.state == SlotState::kEmpty ? kNever : slot.launch_at; break;
    case SlotAction::kRemove:
      if (slot.state == SlotState::kEmpty) {
        Reschedule(index, slot, now);
      } else if (fleet::Recovery* recovery = RecoveryOf(index);
                 recovery != nullptr && slot.state == SlotState::kLaunching) {
        fleet::RecoveryEffects effects;
        recovery->OnLaunchFailed(index, Aborted("the slot is removed"), effects);
        CarryOut(std::move(effects), now);
      }
      if (slot.state != SlotState::kRetired) {
        return;  // until its death is confirmed
      }
      break;
    case SlotAction::kRestart:
      if (slot.state == SlotState::kRetired) {
        return EndLeaving(slot, Retired(index));
      }
      if (options_.use_fault_tolerance && slot.state == SlotState::kEmpty && slot.launch_at == kNever &&
          RecoveryOf(index) == nullptr) {
        slot.launch_at = now;  // in any profile: somebody asked for it
      }
      return;  // until a life registers
  }
  EndLeaving(slot, OkStatus());
}

void Controller::EndLeaving(Slot& slot, const Status& status) {
  for (const std::string& id : slot.leaving->waiting) {
    fresh_.emplace_back(SlotAnswered{id, status});
  }
  slot.leaving.reset();
}

}  // namespace refit::control
