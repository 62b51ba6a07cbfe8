// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/slot.h"

#include <algorithm>

namespace refit::fleet {
namespace {

using enum SlotState;

constexpr SlotArrow kArrows[] = {
    {kEmpty, kLaunching},
    {kLaunching, kStale},
    {kStale, kBound},
    {kBound, kUpdating},
    {kUpdating, kComplete},
    {kComplete, kServing},
    {kServing, kPaused},
    {kUpdating, kBound},     // retry: the full set again
    {kComplete, kUpdating},  // the version was not committed
    {kPaused, kUpdating},
    {kPaused, kServing},  // kOld, at V-1, before COMMIT(V)
    // any
    {kEmpty, kQuarantined},
    {kLaunching, kQuarantined},
    {kStale, kQuarantined},
    {kBound, kQuarantined},
    {kUpdating, kQuarantined},
    {kComplete, kQuarantined},
    {kServing, kQuarantined},
    {kPaused, kQuarantined},
    {kZombie, kQuarantined},
    {kQuarantined, kKilling},
    {kKilling, kEmpty},
    {kKilling, kZombie},
    {kEmpty, kRetired},
    {kQuarantined, kRetired},  // attached
};

}  // namespace

std::string_view ToString(SlotState state) {
  switch (state) {
    case kEmpty: return "empty";
    case kLaunching: return "launching";
    case kStale: return "stale";
    case kBound: return "bound";
    case kUpdating: return "updating";
    case kComplete: return "complete";
    case kServing: return "serving";
    case kPaused: return "paused";
    case kQuarantined: return "quarantined";
    case kKilling: return "killing";
    case kZombie: return "zombie";
    case kRetired: return "retired";
  }
  return "?";
}

std::span<const SlotArrow> SlotArrows() { return kArrows; }

bool IsSlotArrow(SlotState from, SlotState to) {
  return std::find(std::begin(kArrows), std::end(kArrows), SlotArrow{from, to}) != std::end(kArrows);
}

bool IsLive(SlotState state) { return state >= kStale && state <= kPaused; }

}  // namespace refit::fleet
