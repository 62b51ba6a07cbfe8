// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a slot: its life serves, is lost, is killed, is launched again. Every change of state goes through
// Enter.

#include <algorithm>
#include <utility>

#include "refit/base/check.h"
#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/control/controller.h"

namespace refit::control {
namespace {

using fleet::SlotState;
using sync::AgentCommandKind;

constexpr std::size_t kPastMax = 8;

}  // namespace

void Controller::Enter(SlotIndex index, Slot& slot, SlotState state, std::string reason) {
  REFIT_CHECK(fleet::IsSlotArrow(slot.state, state), "the slot machine has no such arrow");
  fresh_.emplace_back(SlotChanged{index, slot.incarnation, {slot.state, state}, std::move(reason)});
  slot.state = state;
}

// It serves what is committed: the router may know it, the monitor may probe it (C10: after `resume`).
void Controller::EnterServing(SlotIndex index, Slot& slot, Instant now) {
  if (slot.state != SlotState::kServing) {
    if (!fleet::IsSlotArrow(slot.state, SlotState::kServing)) {
      return;  // resumed at its launch weights: it holds nothing that anybody committed
    }
    Enter(index, slot, SlotState::kServing);
  }
  slot.version = committed_;
  slot.last_error.clear();
  if (options_.use_router) {
    slot.in_traffic = true;
    slot.spared = false;
    fleet::RouterEffects effects;
    router_.Want(index, slot.incarnation, now, effects);
    CarryOut(std::move(effects), now);
  }
  if (options_.use_fault_tolerance && !request_.has_value()) {  // else when the request has ended
    health_.Enable(index, slot.incarnation, now);
  }
}

// ---- losing a life

// Quarantine (RX-QUAR-03): out of the router, no call but kill, the reason written down, the slot launched again.
void Controller::Lose(SlotIndex index, Incarnation incarnation, const Status& status, Death death, Instant now) {
  const bool confirmed = death == Death::kConfirmed;
  const auto found = slots_.find(index);
  if (found == slots_.end() ||
      REFIT_MUTANT("RC-MON-10/kill-by-slot", found->second.incarnation != incarnation, false)) {
    return;  // late evidence about a dead life (RX-QUAR-07)
  }
  Slot& slot = found->second;
  if (slot.kill.has_value()) {
    if (confirmed) {
      ConfirmDeath(index, slot, now);
    }
    return;
  }
  if (slot.state == SlotState::kKilling && confirmed) {
    return OnDead(index, slot, true, now);
  }
  const bool over = slot.state == SlotState::kQuarantined || slot.state == SlotState::kKilling ||
                    slot.state == SlotState::kEmpty || slot.state == SlotState::kRetired ||
                    (slot.state == SlotState::kZombie && !confirmed);
  if (over && !slot.adopting) {
    if (slot.state == SlotState::kKilling && !options_.use_router) {
      Forward(sync::OutOfTraffic{index, incarnation}, now);  // the kill could not even be delivered
    }
    return;
  }
  slot.adopting = false;
  slot.spare_charge = false;
  slot.expected_until = kNever;
  slot.last_error = status.ToString();
  Enter(index, slot, SlotState::kQuarantined, status.message());
  slot.member.reset();
  slot.errands.clear();
  unbound_.erase(index);
  fleet::HealthEffects health;
  health_.Disable(index, incarnation, health);  // forgotten when its kill has ended
  CarryOut(std::move(health), now);
  Write(SlotRecord{index, incarnation, SlotState::kQuarantined, status.message()}, now);
  Forward(sync::AgentLost{index, incarnation, status}, now);
  if (fleet::Recovery* recovery = RecoveryOf(index); recovery != nullptr) {
    fleet::RecoveryEffects effects;
    recovery->OnDied(index, incarnation, status, effects);
    CarryOut(std::move(effects), now);
  }
  if (slot.kill.has_value()) {  // the recovery has begun it
    if (confirmed) {
      ConfirmDeath(index, slot, now);
    }
    return;
  }
  if (slot.attached) {
    return Detach(index, slot, now);
  }
  if (options_.use_fault_tolerance) {
    return StartKill(index, slot, confirmed, now);
  }
  Enter(index, slot, SlotState::kKilling);
  if (confirmed) {
    return OnDead(index, slot, true, now);
  }
  // Its agent ends it, as soon as it can be reached. Nobody is sent to it meanwhile, where a router is ours to tell.
  SendErrand(index, slot, Errand::kKill, AgentCommandKind::kKill, WeightVersion(0));
  LeaveTraffic(index, slot, now);
  if (!options_.use_router && death == Death::kUnreachable) {
    Forward(sync::OutOfTraffic{index, incarnation}, now);
  }
}

// An attached engine is not ours to kill: held, out of the router, and its slot is used no more (RC-KILL-07).
void Controller::Detach(SlotIndex index, Slot& slot, Instant now) {
  Enter(index, slot, SlotState::kRetired, "attached: attach it again when it is well");
  Write(RetireRecord{index}, now);
  LeaveTraffic(index, slot, now);
  if (!options_.use_router) {
    Forward(sync::OutOfTraffic{index, slot.incarnation}, now);
  }
  SendErrand(index, slot, Errand::kHold, AgentCommandKind::kHold, WeightVersion(0));
}

void Controller::StartKill(SlotIndex index, Slot& slot, bool confirmed, Instant now) {
  Enter(index, slot, SlotState::kKilling);
  slot.kill.emplace(options_.health.timeout);
  fleet::KillPathEffects effects;
  slot.kill->Start(now, effects);
  if (confirmed) {
    slot.kill->OnDeath(effects);
  }
  CarryOut(index, std::move(effects), now);
}

void Controller::ConfirmDeath(SlotIndex index, Slot& slot, Instant now) {
  fleet::KillPathEffects effects;
  slot.kill->OnDeath(effects);
  CarryOut(index, std::move(effects), now);
}

void Controller::CarryOut(SlotIndex index, fleet::KillPathEffects effects, Instant now) {
  Slot& slot = slots_.at(index);
  for (const fleet::KillPathEffect& effect : effects) {
    if (std::holds_alternative<fleet::Deregister>(effect)) {
      LeaveTraffic(index, slot, now);
      if (!slot.in_traffic && slot.kill.has_value()) {
        fleet::KillPathEffects more;
        slot.kill->OnDeregistered(now, more);
        CarryOut(index, std::move(more), now);
      }
    } else if (const auto* shut = std::get_if<fleet::ShutDown>(&effect)) {
      fresh_.emplace_back(ShutDownEngine{index, slot.incarnation, shut->deadline});
    } else if (std::holds_alternative<fleet::HardKill>(effect)) {
      fresh_.emplace_back(KillEngine{index, slot.incarnation});
    } else {
      const bool confirmed = std::get<fleet::KillPathEnded>(effect).confirmed;
      slot.kill.reset();
      OnDead(index, slot, REFIT_MUTANT("RC-KILL-05/clear-anyway", confirmed, true), now);
    }
  }
}

void Controller::OnDead(SlotIndex index, Slot& slot, bool confirmed, Instant now) {
  if (slot.state != SlotState::kKilling) {
    return;
  }
  fleet::HealthEffects health;
  health_.OnKillEnded(index, slot.incarnation, health);
  health_.Forget(index, slot.incarnation, health);
  CarryOut(std::move(health), now);
  const Incarnation incarnation = slot.incarnation;
  Enter(index, slot, confirmed ? SlotState::kEmpty : SlotState::kZombie);
  Write(SlotRecord{index, incarnation, slot.state, {}}, now);
  if (confirmed) {
    if (!incarnation.is_zero()) {
      slot.past.push_back(incarnation);
    }
    if (slot.past.size() > kPastMax) {
      slot.past.erase(slot.past.begin());
    }
    LeaveTraffic(index, slot, now);
    slot.in_traffic = false;  // nobody is answered by the dead
    Forward(sync::OutOfTraffic{index, incarnation}, now);
  }
  if (fleet::Recovery* recovery = RecoveryOf(index); recovery != nullptr) {
    fleet::RecoveryEffects effects;
    recovery->OnRolledBack(index, confirmed, effects);
    return CarryOut(std::move(effects), now);
  }
  Reschedule(index, slot, now);
}

void Controller::LeaveTraffic(SlotIndex index, Slot& slot, Instant now) {
  slot.spared = false;
  if (!options_.use_router) {
    slot.in_traffic = false;
    return;
  }
  fleet::RouterEffects effects;
  router_.Remove(index, slot.incarnation, now, effects);
  CarryOut(std::move(effects), now);
}

// ---- launching again

void Controller::Reschedule(SlotIndex index, Slot& slot, Instant now) {
  if (slot.service == Service::kLeaving && slot.state == SlotState::kEmpty) {
    Enter(index, slot, SlotState::kRetired, "removed");
    return Write(RetireRecord{index}, now);
  }
  if (!options_.use_fault_tolerance) {
    return;
  }
  if (slot.state == SlotState::kZombie) {  // asked again for as long as it takes
    slot.launch_at = now + options_.restarts.max_backoff;
    return;
  }
  if (slot.service != Service::kIn) {
    return;  // nobody wants one there
  }
  if (!slot.spare_charge) {
    slot.charged = slot.incarnation;
  }
  slot.launch_at =
      std::exchange(slot.spare_charge, false) ? now + options_.restarts.first_backoff : slot.budget.Charge(now, prng_);
  if (slot.launch_at == kNever && slot.state == SlotState::kEmpty) {
    Enter(index, slot, SlotState::kRetired, "its restarts are used up");
    Write(RetireRecord{index}, now);
  } else if (slot.state == SlotState::kEmpty && options_.profile.recover_when == sync::RecoverWhen::kSync) {
    slot.launch_at = kNever;  // the next sync launches it (RC-ROLE-06)
  }
}

void Controller::StartRecovery(std::vector<SlotIndex> slots, Instant now) {
  for (const SlotIndex index : slots) {
    slots_.at(index).launch_at = kNever;
  }
  recoveries_.emplace_back(fleet::RecoveryOptions{
      .slots = std::move(slots), .needs_offload = options_.needs_offload, .launch_budget = options_.launch_budget});
  fleet::RecoveryEffects effects;
  recoveries_.back().Start(now, effects);
  CarryOut(std::move(effects), now);
}

fleet::Recovery* Controller::RecoveryOf(SlotIndex index) {
  const auto found = std::find_if(recoveries_.begin(), recoveries_.end(), [index](const fleet::Recovery& recovery) {
    return recovery.concerns(index) && recovery.phase() != fleet::RecoveryPhase::kEnded;
  });
  return found == recoveries_.end() ? nullptr : &*found;
}

void Controller::CarryOut(fleet::RecoveryEffects effects, Instant now) {
  for (const fleet::RecoveryEffect& effect : effects) {
    if (const auto* launch = std::get_if<fleet::LaunchSlot>(&effect)) {
      Slot& slot = slots_.at(launch->slot);
      slot.launch = next_launch_++;
      slot.incarnation = {};
      Enter(launch->slot, slot, SlotState::kLaunching);
      Write(SlotRecord{launch->slot, {}, SlotState::kLaunching, {}}, now);
      fresh_.emplace_back(LaunchEngine{launch->slot, slot.launch, launch->budget});
    } else if (const auto* offload = std::get_if<fleet::Offload>(&effect)) {
      SendErrand(offload->slot, slots_.at(offload->slot), Errand::kRelease, AgentCommandKind::kRelease,
                 WeightVersion(0));
    } else if (const auto* back = std::get_if<fleet::RollBack>(&effect)) {
      RollBack(*back, now);
    } else {
      OnRecoveryEnded(std::get<fleet::RecoveryEnded>(effect), now);
    }
  }
}

void Controller::RollBack(const fleet::RollBack& back, Instant now) {
  Slot& slot = slots_.at(back.slot);
  slot.launch = 0;
  if (slot.state == SlotState::kQuarantined) {
    StartKill(back.slot, slot, false, now);
  } else if (slot.state == SlotState::kEmpty) {
    if (fleet::Recovery* recovery = RecoveryOf(back.slot); recovery != nullptr) {
      fleet::RecoveryEffects effects;
      recovery->OnRolledBack(back.slot, true, effects);
      CarryOut(std::move(effects), now);
    }
  } else if (slot.state < SlotState::kQuarantined) {
    Lose(back.slot, slot.incarnation, Aborted("its recovery was rolled back"), Death::kWanted, now);
  }
}

void Controller::OnRecoveryEnded(const fleet::RecoveryEnded& ended, Instant now) {
  std::vector<SlotIndex> concerned;
  for (const auto& [index, slot] : slots_) {
    const bool of_it = std::any_of(recoveries_.begin(), recoveries_.end(), [index = index](const auto& each) {
      return each.phase() == fleet::RecoveryPhase::kEnded && each.concerns(index);
    });
    if (of_it) {
      concerned.push_back(index);
    }
  }
  std::erase_if(recoveries_, [](const auto& each) { return each.phase() == fleet::RecoveryPhase::kEnded; });
  if (ended.status.ok()) {
    return;
  }
  for (const SlotIndex index : concerned) {
    Slot& slot = slots_.at(index);
    slot.last_error = ended.status.ToString();
    if (slot.state == SlotState::kEmpty || slot.state == SlotState::kZombie) {
      Reschedule(index, slot, now);
    }
  }
  const bool strict = options_.profile.recovery == sync::RecoveryUnit::kCohort;
  if (strict && !ended.zombies.empty()) {
    Latch(ended.status, now);
  }
  if (strict && request_.has_value() && !session_.has_value()) {
    EndRequest(ended.status, std::nullopt, now);
  }
}

// ---- what hosts answer

void Controller::On(const LaunchFailed& event, Instant now) {
  const auto slot = slots_.find(event.slot);
  fleet::Recovery* const recovery = RecoveryOf(event.slot);
  if (slot == slots_.end() || slot->second.launch != event.launch || recovery == nullptr) {
    return;
  }
  fleet::RecoveryEffects effects;
  recovery->OnLaunchFailed(event.slot, event.status, effects);
  CarryOut(std::move(effects), now);
}

void Controller::On(const ShutDownEnded& event, Instant now) {
  const auto slot = slots_.find(event.slot);
  if (slot == slots_.end() || !slot->second.kill.has_value() || slot->second.incarnation != event.incarnation) {
    return;
  }
  fleet::KillPathEffects effects;
  slot->second.kill->OnShutDown(now, effects);
  CarryOut(event.slot, std::move(effects), now);
}

void Controller::On(const KillEnded& event, Instant now) {
  const auto slot = slots_.find(event.slot);
  if (slot == slots_.end() || slot->second.incarnation != event.incarnation) {
    return;
  }
  if (slot->second.kill.has_value()) {
    fleet::KillPathEffects effects;
    slot->second.kill->OnKilled(event.confirmed, effects);
    return CarryOut(event.slot, std::move(effects), now);
  }
  if (event.confirmed && slot->second.state == SlotState::kZombie) {
    Lose(event.slot, event.incarnation, Unavailable("its kill was confirmed late"), Death::kConfirmed, now);
  }
}

void Controller::On(const ProbeEnded& event, Instant now) {
  fleet::HealthEffects effects;
  health_.OnProbeEnded(event.slot, event.incarnation, event.probe, event.status, now, effects);
  CarryOut(std::move(effects), now);
}

void Controller::On(const RequestServed& event, Instant now) {
  fleet::HealthEffects effects;
  health_.OnRequest(event.slot, event.incarnation, event.succeeded ? OkStatus() : Unavailable("a request failed"),
                    effects);
  CarryOut(std::move(effects), now);
}

void Controller::On(const RouterAnswered& event, Instant now) {
  std::vector<fleet::RouterEntry> entries = event.entries;
  std::erase_if(entries, [this](const fleet::RouterEntry& entry) {
    const auto slot = slots_.find(entry.slot);
    return slot != slots_.end() && slot->second.spared && slot->second.incarnation == entry.incarnation;
  });
  fleet::RouterEffects effects;
  router_.OnAnswer(event.call, event.status, entries, now, effects);
  CarryOut(std::move(effects), now);
}

// ---- monitor and router

void Controller::CarryOut(fleet::HealthEffects effects, Instant now) {
  for (const fleet::HealthEffect& effect : effects) {
    if (const auto* probe = std::get_if<fleet::StartProbe>(&effect)) {
      fresh_.emplace_back(ProbeEngine{probe->slot, probe->incarnation, probe->probe, probe->timeout});
    } else if (const auto* unhealthy = std::get_if<fleet::Unhealthy>(&effect)) {
      Lose(unhealthy->slot, unhealthy->incarnation, Unavailable(unhealthy->reason), Death::kWanted, now);
    } else if (const auto* quiet = std::get_if<fleet::Quiet>(&effect)) {
      not_quiet_.erase(quiet->slot);
    }
  }
}

void Controller::CarryOut(fleet::RouterEffects effects, Instant now) {
  for (fleet::RouterEffect& effect : effects) {
    if (auto* call = std::get_if<fleet::CallRouter>(&effect)) {
      fresh_.emplace_back(RouterCall{call->call, std::move(call->action), call->deadline});
    } else if (const auto* gone = std::get_if<fleet::EntryGone>(&effect)) {
      Slot& slot = slots_.at(gone->slot);
      if (slot.incarnation != gone->incarnation) {
        continue;
      }
      slot.in_traffic = false;
      if (slot.kill.has_value()) {
        fleet::KillPathEffects more;
        slot.kill->OnDeregistered(now, more);
        CarryOut(gone->slot, std::move(more), now);
      }
      Forward(sync::OutOfTraffic{gone->slot, gone->incarnation}, now);
    }
  }
}

// ---- time

void Controller::Tick(Instant now) {
  if (term_check_at_ <= now) {
    term_check_at_ = now + options_.term_check_interval;
    fresh_.emplace_back(CheckTerm{});
  }
  if (returning_until_ <= now) {
    returning_until_ = kNever;
  }
  if (options_.use_fault_tolerance && health_.next_deadline() <= now) {
    fleet::HealthEffects effects;
    health_.HandleDeadline(now, effects);
    CarryOut(std::move(effects), now);
  }
  if (options_.use_router && router_.next_deadline() <= now) {
    fleet::RouterEffects effects;
    router_.HandleDeadline(now, effects);
    CarryOut(std::move(effects), now);
  }
  for (std::size_t i = 0; i < recoveries_.size(); ++i) {
    if (recoveries_[i].next_deadline() <= now) {
      fleet::RecoveryEffects effects;
      recoveries_[i].HandleDeadline(now, effects);
      CarryOut(std::move(effects), now);
    }
  }
  for (auto& [index, slot] : slots_) {
    if (slot.kill.has_value() && slot.kill->next_deadline() <= now) {
      fleet::KillPathEffects effects;
      slot.kill->HandleDeadline(now, effects);
      CarryOut(index, std::move(effects), now);
    }
    if (slot.expected_until <= now) {
      slot.expected_until = kNever;
      if (options_.use_fault_tolerance) {
        Lose(index, slot.incarnation, Unavailable("nobody registered for the life that the journal names"),
             Death::kUnreachable, now);
      }
      slot.adopting = false;  // it may come later; until then it is kept out of traffic
      if (slot.spared) {
        LeaveTraffic(index, slot, now);
      }
    }
    if (slot.launch_at <= now && !latch_.has_value()) {
      slot.launch_at = kNever;
      if (slot.state == SlotState::kZombie) {
        Enter(index, slot, SlotState::kQuarantined, "its kill is tried again");
        StartKill(index, slot, false, now);
      } else if (slot.state == SlotState::kEmpty) {
        StartRecovery({index}, now);
      }
    }
  }
}

std::vector<SlotView> Controller::slots() const {
  std::vector<SlotView> views;
  for (const auto& [index, slot] : slots_) {
    SlotView& view = views.emplace_back();
    view.slot = index;
    view.state = slot.state;
    view.version = slot.version;
    view.service = ServiceText(slot);
    view.in_service = slot.service == Service::kIn && slot.state != SlotState::kRetired;
    view.last_error = slot.last_error;
    if (slot.member.has_value()) {
      view.incarnation = slot.member->incarnation;
      view.tp_size = slot.member->tp_size;
      view.residue = slot.member->residue;
      view.serving = slot.member->serving;
    }
  }
  return views;
}

}  // namespace refit::control
