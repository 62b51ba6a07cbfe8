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
// By the kill path, answered by OnRolledBack. Of every slot of the attempt, also where the launch failed: who knows how
// far it got (RC-KILL-02). incarnation zero: its launch was not answered; once more, with the life, if it is later.
struct RollBack {
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
  Duration launch_budget{};  // of each launch, of the offload, and of the rollback: three in all
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
  struct Slot {
    Incarnation incarnation;  // zero: not launched yet
    bool offloaded = false;
    bool rolled_back = false;
    bool confirmed = false;
  };

  Slot* Find(SlotIndex slot, Incarnation incarnation);
  bool all_launched() const;
  bool all_offloaded() const;
  bool all_rolled_back() const;
  void Launched(Instant now, RecoveryEffects& out);
  void Fail(const Status& status, RecoveryEffects& out);
  void Succeed(RecoveryEffects& out);
  void EndRollback(RecoveryEffects& out);

  RecoveryOptions options_;
  RecoveryPhase phase_ = RecoveryPhase::kIdle;
  std::map<SlotIndex, Slot> slots_;
  Status error_;                        // the first
  Instant deadline_ = kNever;           // of the phase
  Instant rollback_deadline_ = kNever;  // of all of it
};

}  // namespace refit::fleet
