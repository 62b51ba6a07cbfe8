// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/recovery.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "refit/base/check.h"
#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::fleet {

std::string_view ToString(RecoveryPhase phase) {
  switch (phase) {
    case RecoveryPhase::kIdle: return "idle";
    case RecoveryPhase::kLaunching: return "launching";
    case RecoveryPhase::kOffloading: return "offloading";
    case RecoveryPhase::kRollingBack: return "rolling back";
    case RecoveryPhase::kEnded: return "ended";
  }
  return "?";
}

namespace {

std::string Name(const std::vector<SlotIndex>& slots) {
  std::string text = slots.size() == 1 ? "slot " : "slots ";
  for (const SlotIndex slot : slots) {
    text += StrCat(slot == slots.front() ? "" : ", ", slot);
  }
  return text;
}

}  // namespace

Recovery::Recovery(RecoveryOptions options) : options_(std::move(options)) {
  REFIT_CHECK(!options_.slots.empty(), "a recovery of no slot touches what it must not (RC-REC-02)");
  for (const SlotIndex slot : options_.slots) {
    slots_[slot];
  }
}

void Recovery::Start(Instant now, RecoveryEffects& out) {
  if (phase_ != RecoveryPhase::kIdle) {
    return;
  }
  phase_ = RecoveryPhase::kLaunching;
  deadline_ = now + options_.launch_budget;
  rollback_deadline_ = now + 3 * options_.launch_budget;
  for (const auto& [index, slot] : slots_) {
    out.emplace_back(LaunchSlot{index, options_.launch_budget});
  }
}

void Recovery::OnLaunched(SlotIndex slot, Incarnation incarnation, Instant now, RecoveryEffects& out) {
  const auto found = slots_.find(slot);
  if (found == slots_.end() || found->second.incarnation == incarnation) {
    return;
  }
  const bool is_second = !found->second.incarnation.is_zero();
  switch (phase_) {
    case RecoveryPhase::kLaunching:
    case RecoveryPhase::kOffloading:
      found->second.incarnation = incarnation;
      if (is_second) {
        return Fail(Aborted(StrCat("slot ", slot, " is in a second life within one recovery")), out);
      }
      return Launched(now, out);
    case RecoveryPhase::kRollingBack:
      found->second = Slot{.incarnation = incarnation};
      out.emplace_back(RollBack{slot, incarnation});
      return;
    case RecoveryPhase::kIdle:
    case RecoveryPhase::kEnded: return;
  }
}

void Recovery::Launched(Instant now, RecoveryEffects& out) {
  if (!REFIT_MUTANT("RC-REC-08/skip-check", all_launched(), true)) {
    return;
  }
  if (!options_.needs_offload) {
    return Succeed(out);
  }
  phase_ = RecoveryPhase::kOffloading;
  deadline_ = now + options_.launch_budget;
  for (const auto& [index, slot] : slots_) {
    out.emplace_back(Offload{index, slot.incarnation, options_.launch_budget});
  }
}

void Recovery::OnLaunchFailed(SlotIndex slot, const Status& status, RecoveryEffects& out) {
  if (concerns(slot) && phase_ == RecoveryPhase::kLaunching) {
    Fail(status.WithContext(StrCat("launch of slot ", slot)), out);
  }
}

void Recovery::OnOffloaded(SlotIndex slot, Incarnation incarnation, const Status& status, RecoveryEffects& out) {
  Slot* offloaded = Find(slot, incarnation);
  if (offloaded == nullptr || phase_ != RecoveryPhase::kOffloading) {
    return;
  }
  if (!status.ok()) {
    return Fail(status.WithContext(StrCat("offload of slot ", slot)), out);
  }
  offloaded->offloaded = true;
  if (all_offloaded()) {
    Succeed(out);
  }
}

void Recovery::OnDied(SlotIndex slot, Incarnation incarnation, const Status& status, RecoveryEffects& out) {
  if (Find(slot, incarnation) != nullptr &&
      (phase_ == RecoveryPhase::kLaunching || phase_ == RecoveryPhase::kOffloading)) {
    Fail(status.WithContext(StrCat("slot ", slot, " died while it recovered")), out);
  }
}

void Recovery::OnRolledBack(SlotIndex slot, bool confirmed, RecoveryEffects& out) {
  const auto found = slots_.find(slot);
  if (found == slots_.end() || phase_ != RecoveryPhase::kRollingBack || found->second.rolled_back) {
    return;
  }
  found->second.rolled_back = true;
  found->second.confirmed = confirmed;
  if (all_rolled_back()) {
    EndRollback(out);
  }
}

void Recovery::Cancel(const Status& status, RecoveryEffects& out) {
  if (phase_ == RecoveryPhase::kIdle) {
    phase_ = RecoveryPhase::kEnded;
    out.emplace_back(RecoveryEnded{.status = status, .filled = {}, .zombies = {}});
  } else if (phase_ == RecoveryPhase::kLaunching || phase_ == RecoveryPhase::kOffloading) {
    Fail(status, out);
  }
}

void Recovery::HandleDeadline(Instant now, RecoveryEffects& out) {
  if (deadline_ > now || phase_ == RecoveryPhase::kIdle || phase_ == RecoveryPhase::kEnded) {
    return;
  }
  if (phase_ == RecoveryPhase::kRollingBack) {
    return EndRollback(out);
  }
  std::vector<SlotIndex> late;
  for (const auto& [index, slot] : slots_) {
    if (phase_ == RecoveryPhase::kLaunching ? slot.incarnation.is_zero() : !slot.offloaded) {
      late.push_back(index);
    }
  }
  Fail(DeadlineExceeded(
           StrCat(Name(late),
                  phase_ == RecoveryPhase::kLaunching ? " did not start within " : " did not offload within ",
                  std::chrono::ceil<std::chrono::milliseconds>(options_.launch_budget).count(), " ms"),
           "look at the log of its agent, or raise the deadline of launches"),
       out);
}

Instant Recovery::next_deadline() const { return deadline_; }

bool Recovery::concerns(SlotIndex slot) const { return slots_.contains(slot); }

Recovery::Slot* Recovery::Find(SlotIndex slot, Incarnation incarnation) {
  const auto found = slots_.find(slot);
  return found != slots_.end() && !incarnation.is_zero() && found->second.incarnation == incarnation ? &found->second
                                                                                                     : nullptr;
}

bool Recovery::all_launched() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return !slot.second.incarnation.is_zero(); });
}

bool Recovery::all_offloaded() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot.second.offloaded; });
}

bool Recovery::all_rolled_back() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot.second.rolled_back; });
}

// RC-REC-04: whatever it was that failed. What follows cannot replace the first error.
void Recovery::Fail(const Status& status, RecoveryEffects& out) {
  [[maybe_unused]] const bool launched = phase_ == RecoveryPhase::kOffloading;
  phase_ = RecoveryPhase::kRollingBack;
  error_ = status;
  deadline_ = REFIT_MUTANT("RC-REC-04/unbounded-rollback", rollback_deadline_, kNever);
  for (auto& [index, slot] : slots_) {
    if (REFIT_MUTANT("RC-REC-03/narrow-guard", false, launched) ||
        REFIT_MUTANT("RC-REC-04/leave-the-unanswered", false, slot.incarnation.is_zero()) ||
        REFIT_MUTANT("RC-TERM-06/cancel-leaves-lives", false, status.code() == StatusCode::kCancelled)) {
      slot.rolled_back = true;
      slot.confirmed = true;
      continue;
    }
    out.emplace_back(RollBack{index, slot.incarnation});
  }
  if (all_rolled_back()) {
    EndRollback(out);
  }
}

void Recovery::Succeed(RecoveryEffects& out) {
  phase_ = RecoveryPhase::kEnded;
  deadline_ = kNever;
  RecoveryEnded ended;
  for (const auto& [index, slot] : slots_) {
    ended.filled.push_back({index, slot.incarnation});
  }
  out.emplace_back(std::move(ended));
}

void Recovery::EndRollback(RecoveryEffects& out) {
  phase_ = RecoveryPhase::kEnded;
  deadline_ = kNever;
  RecoveryEnded ended{.status = error_, .filled = {}, .zombies = {}};
  for (const auto& [index, slot] : slots_) {
    if (!slot.confirmed) {
      ended.zombies.push_back(index);
    }
  }
  if (!ended.zombies.empty() && REFIT_MUTANT("RC-REC-05/original-only", true, false)) {
    ended.status = Internal(StrCat("RecoveryRollbackError: the death of ", Name(ended.zombies),
                                   " was not confirmed; rolled back because of ", error_.ToString()),
                            "end what still runs there by hand");
  }
  out.emplace_back(std::move(ended));
}

}  // namespace refit::fleet
