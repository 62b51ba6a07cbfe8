// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The states of a slot and the only arrows between them (contract §II.8, RX-QUAR-01). A successful probe is no arrow:
// answering proves nothing about weights.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace refit::fleet {

enum class SlotState : std::uint8_t {
  kEmpty,        // nobody; death of whoever was there is confirmed
  kLaunching,    // an engine is being started
  kStale,        // a life that no refit has reached
  kBound,        // its links are proved; holds nothing that may serve
  kUpdating,     // may hold a mix
  kComplete,     // holds a whole version, paused, not activated
  kServing,      // serves a committed version
  kPaused,       // paused, still holds the version that it served
  kQuarantined,  // this life is over: out of the router, no call but kill (RX-QUAR-03)
  kKilling,
  kZombie,   // the kill was not confirmed: nothing is started here (RC-KILL-05)
  kRetired,  // out of restarts, removed, or an attached engine that is not ours to start
};
std::string_view ToString(SlotState state);

struct SlotArrow {
  SlotState from;
  SlotState to;
  friend bool operator==(const SlotArrow&, const SlotArrow&) = default;
};

// Every arrow, those from "any" spelled out. Coverage of the simulator is counted over these.
std::span<const SlotArrow> SlotArrows();
bool IsSlotArrow(SlotState from, SlotState to);

// Whether a life is in the slot that commands may reach.
bool IsLive(SlotState state);  // kStale … kPaused

}  // namespace refit::fleet
