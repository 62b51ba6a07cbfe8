// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/faults.h"

#include "sim/fault_table.h"
#include "sim/world.h"

namespace refit::sim {
namespace {

// Happens at the instant of its trigger, by World::Inject; every other kind is in force until somebody meets it.
bool AtOnce(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillEngine:
    case FaultKind::kKillAgent:
    case FaultKind::kFreezeEngine:
    case FaultKind::kFreezeAgent:
    case FaultKind::kKillPolicy:
    case FaultKind::kKillController:
    case FaultKind::kFreezeController:
    case FaultKind::kSecondController:
    case FaultKind::kForgetRouter:
    case FaultKind::kForeignEntry:
    case FaultKind::kCancelSync:
    case FaultKind::kConcurrentSync:
    case FaultKind::kChangeWeights:
    case FaultKind::kAddSlot:
    case FaultKind::kRemoveSlot: return true;
    default: return false;
  }
}

// A window, not a number of events.
bool Lasts(FaultKind kind) {
  return kind == FaultKind::kPartition || kind == FaultKind::kSlow || kind == FaultKind::kCutData ||
         kind == FaultKind::kLoseRouter || kind == FaultKind::kBlockSource || kind == FaultKind::kNeverHealthy;
}

// A controller is whichever: links are between roles. So is the one router.
bool SameEnd(const Process& planned, const Process& actual) {
  return planned.kind == actual.kind && (planned.index == actual.index || planned.kind == ProcessKind::kController ||
                                         planned.kind == ProcessKind::kRouter);
}

}  // namespace

Faults::Faults(World& world)
    : world_(world), ones_(world.plan().faults.size()), happened_(world.plan().faults.size(), false) {}

void Faults::Start() {
  const std::vector<Fault>& faults = world_.plan().faults;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    if (!faults[i].when.command.has_value()) {
      world_.After(faults[i].when.at, [this, i] { Fire(i); });
    }
  }
}

void Faults::OnCommandSent(SlotIndex slot, sync::AgentCommandKind kind) {
  const std::vector<Fault>& faults = world_.plan().faults;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const Trigger& when = faults[i].when;
    if (ones_[i].state == State::kWaiting && when.command == kind && when.slot == slot.value() &&
        ones_[i].seen++ == when.skip) {
      ones_[i].state = State::kFiring;
      world_.After(when.at, [this, i] { Fire(i); });
    }
  }
}

void Faults::Fire(std::size_t index) {
  One& one = ones_[index];
  const Fault& fault = world_.plan().faults[index];
  if (healed_ || one.state == State::kOver) {
    return;
  }
  world_.Note("fault ", index, ": ", ToString(fault.kind), " ", fault.target);
  if (AtOnce(fault.kind)) {
    one.state = State::kOver;
    happened_[index] = world_.Inject(fault) || happened_[index];
    return;
  }
  one.state = State::kInForce;
  one.left = fault.count;
  one.until = fault.lasts == Duration(0) ? kNever : world_.now() + fault.lasts;
}

void Faults::Heal() {
  healed_ = true;
  for (One& one : ones_) {
    one.state = State::kOver;
  }
}

bool Faults::InForce(std::size_t index) {
  One& one = ones_[index];
  if (one.state == State::kInForce && one.until <= world_.now()) {
    one.state = State::kOver;
  }
  return one.state == State::kInForce;
}

void Faults::Use(std::size_t index) {
  One& one = ones_[index];
  happened_[index] = true;
  if (!Lasts(world_.plan().faults[index].kind) && (one.left == 0 || --one.left == 0)) {
    one.state = State::kOver;
  }
}

bool Faults::Take(FaultKind kind, std::uint32_t target) {
  const std::vector<Fault>& faults = world_.plan().faults;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    if (faults[i].kind == kind && faults[i].target == target && InForce(i)) {
      Use(i);
      return true;
    }
  }
  return false;
}

std::optional<Instant> Faults::During(FaultKind kind, std::uint32_t target) {
  const std::vector<Fault>& faults = world_.plan().faults;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    if (faults[i].kind == kind && faults[i].target == target && InForce(i)) {
      Use(i);
      return ones_[i].until;
    }
  }
  return std::nullopt;
}

bool Faults::TakeData(FaultKind kind, PolicyRank policy, SlotIndex slot) {
  const std::vector<Fault>& faults = world_.plan().faults;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    if (faults[i].kind == kind && faults[i].from.index == policy.value() && faults[i].to.index == slot.value() &&
        InForce(i)) {
      Use(i);
      return true;
    }
  }
  return false;
}

std::optional<FaultKind> Faults::TakeCall(SlotIndex slot, sync::Operation operation) {
  const std::vector<Fault>& faults = world_.plan().faults;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const FaultKind kind = faults[i].kind;
    const bool about_calls = kind == FaultKind::kRefuseCall || kind == FaultKind::kLoseAnswer ||
                             kind == FaultKind::kLoseCall || kind == FaultKind::kDieInCall;
    if (about_calls && faults[i].target == slot.value() && faults[i].operation.value_or(operation) == operation &&
        InForce(i)) {
      Use(i);
      return kind;
    }
  }
  return std::nullopt;
}

LinkFault Faults::TakeLink(Process from, Process to) {
  LinkFault link;
  const std::vector<Fault>& faults = world_.plan().faults;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const Fault& fault = faults[i];
    if (ones_[i].state != State::kInForce || !SameEnd(fault.from, from) || !SameEnd(fault.to, to) || !InForce(i)) {
      continue;
    }
    switch (fault.kind) {
      case FaultKind::kPartition:
      case FaultKind::kDrop: link.lost = true; break;
      case FaultKind::kSlow: link.later += fault.by; break;
      case FaultKind::kDuplicate: link.again = fault.by; break;
      case FaultKind::kReorder:
        link.later += fault.by;
        link.overtaken = true;
        break;
      default: continue;
    }
    Use(i);
  }
  return link;
}

}  // namespace refit::sim
