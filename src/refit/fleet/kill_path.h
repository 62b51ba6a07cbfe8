// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How one life ends (contract §15): out of the router, a graceful shutdown that is bounded, then the hard kill, always.
// The slot is empty only when death is confirmed (RC-KILL-05).

#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/time.h"

namespace refit::fleet {

// ---- effects
struct Deregister {};  // the entry of this life; a router that fails or does not answer holds up nothing (RC-KILL-03)
struct ShutDown {
  Duration deadline{};
};
struct HardKill {};
struct KillPathEnded {
  bool confirmed = false;  // else the slot is a zombie
};
using KillPathEffect = std::variant<Deregister, ShutDown, HardKill, KillPathEnded>;
using KillPathEffects = std::vector<KillPathEffect>;

enum class KillPhase : std::uint8_t { kIdle, kDeregistering, kShuttingDown, kKilling, kEnded };
std::string_view ToString(KillPhase phase);

class KillPath {
 public:
  // graceful: bound of the deregistration and of the shutdown, each; the hard kill has the same to be confirmed.
  explicit KillPath(Duration graceful);

  void Start(Instant now, KillPathEffects& out);
  void OnDeregistered(Instant now, KillPathEffects& out);  // however that ended
  void OnShutDown(Instant now, KillPathEffects& out);      // however that ended
  void OnKilled(bool confirmed, KillPathEffects& out);
  void OnDeath(KillPathEffects& out);  // confirmed by other means, at any time

  void HandleDeadline(Instant now, KillPathEffects& out);
  Instant next_deadline() const;
  KillPhase phase() const { return phase_; }

 private:
  void Enter(KillPhase phase, Instant now, KillPathEffects& out);
  void End(bool confirmed, KillPathEffects& out);

  Duration graceful_;
  KillPhase phase_ = KillPhase::kIdle;
  Instant deadline_ = kNever;
};

}  // namespace refit::fleet
