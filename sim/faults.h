// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What of the plan goes wrong, and when. A fault waits for its trigger; then it either happens at once, by World, or is
// in force until its time or its count is over, and whoever it is about asks here. After Heal nothing goes wrong.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/time.h"
#include "sim/plan.h"

namespace refit::sim {

class World;

// What the plan does to one message.
struct LinkFault {
  bool lost = false;
  Duration later{};
  std::optional<Duration> again;  // a second copy, that much later
  bool overtaken = false;         // others may pass it
};

class Faults {
 public:
  explicit Faults(World& world);

  void Start();
  void OnCommandSent(SlotIndex slot, sync::AgentCommandKind kind);
  void Heal();
  bool healed() const { return healed_; }

  // In force about that target; counts as happened, and used up where it has a count.
  bool Take(FaultKind kind, std::uint32_t target);
  // In force for some time about that target: until when; kNever: until healing. Counts as happened.
  std::optional<Instant> During(FaultKind kind, std::uint32_t target);
  // Of the data path of a pair.
  bool TakeData(FaultKind kind, PolicyRank policy, SlotIndex slot);
  // kRefuseCall, kLoseAnswer, kLoseCall, kDieInCall about this call, if any.
  std::optional<FaultKind> TakeCall(SlotIndex slot, sync::Operation operation);
  LinkFault TakeLink(Process from, Process to);

  const std::vector<bool>& happened() const { return happened_; }

 private:
  enum class State : std::uint8_t { kWaiting, kFiring, kInForce, kOver };
  struct One {
    State state = State::kWaiting;
    std::uint32_t seen = 0;  // commands that fit its trigger
    std::uint32_t left = 0;
    Instant until = kNever;
  };

  void Fire(std::size_t index);
  bool InForce(std::size_t index);
  void Use(std::size_t index);

  World& world_;
  std::vector<One> ones_;
  std::vector<bool> happened_;
  bool healed_ = false;
};

}  // namespace refit::sim
