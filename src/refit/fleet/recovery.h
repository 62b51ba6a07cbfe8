// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Recovery as one attempt, from launch to the offload transition (contract §16): all of its slots are filled, or none
// is. Whatever fails, every slot that this attempt filled is killed again, and the original error is what is reported.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"

namespace refit::fleet {

// ---- effects
struct LaunchSlot {
  SlotIndex slot;
  Duration budget{};
};
struct Offload {  // release both tags, take the weights' memory back; of a fleet that needs it
  SlotIndex slot;
  Incarnation incarnation;
  Duration budget{};
};
struct RollBack {  // by the kill path; answered by OnRolledBack. incarnation zero: its launch was not answered yet
  SlotIndex slot;
  Incarnation incarnation;
};
struct FilledSlot {
  SlotIndex slot;
  Incarnation incarnation;
};
struct RecoveryEnded {
  // OK: every slot is filled. Else the first failure; where a rollback failed as well, INTERNAL "RecoveryRollbackError:
  // …" with both (RC-REC-05).
  Status status;
  std::vector<FilledSlot> filled;  // empty unless OK (RC-REC-08)
  std::vector<SlotIndex> zombies;  // whose rollback was not confirmed
};
using RecoveryEffect = std::variant<LaunchSlot, Offload, RollBack, RecoveryEnded>;
using RecoveryEffects = std::vector<RecoveryEffect>;

struct RecoveryOptions {
  std::vector<SlotIndex> slots;  // empty ones, at least one (RC-REC-02: nothing starts a recovery of none)
  bool needs_offload = false;
  Duration launch_budget{};  // of each launch
};

enum class RecoveryPhase : std::uint8_t { kIdle, kLaunching, kOffloading, kRollingBack, kEnded };
std::string_view ToString(RecoveryPhase phase);

class Recovery {
 public:
  explicit Recovery(RecoveryOptions options);

  void Start(Instant now, RecoveryEffects& out);
  void OnLaunched(SlotIndex slot, Incarnation incarnation, Instant now, RecoveryEffects& out);
  void OnLaunchFailed(SlotIndex slot, const Status& status, RecoveryEffects& out);
  void OnOffloaded(SlotIndex slot, Incarnation incarnation, const Status& status, RecoveryEffects& out);
  void OnDied(SlotIndex slot, Incarnation incarnation, const Status& status, RecoveryEffects& out);  // a filled one
  void OnRolledBack(SlotIndex slot, bool confirmed, RecoveryEffects& out);
  void Cancel(const Status& status, RecoveryEffects& out);  // handled like any failure (RC-TERM-06)

  void HandleDeadline(Instant now, RecoveryEffects& out);
  Instant next_deadline() const;
  RecoveryPhase phase() const { return phase_; }
  bool concerns(SlotIndex slot) const;

 private:
  RecoveryOptions options_;
  RecoveryPhase phase_ = RecoveryPhase::kIdle;
};

}  // namespace refit::fleet
