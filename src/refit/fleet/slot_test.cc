// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace refit::fleet {
namespace {

using enum SlotState;
using ::testing::ElementsAre;

std::vector<SlotState> Into(SlotState to) {
  std::vector<SlotState> from;
  for (const SlotArrow& arrow : SlotArrows()) {
    if (arrow.to == to) {
      from.push_back(arrow.from);
    }
  }
  return from;
}

// RX-QUAR-01: ACTIVATE, and the resume of what still holds the old version. A probe is neither.
TEST(Slot, OnlyTwoArrowsLeadToServing) { EXPECT_THAT(Into(kServing), ElementsAre(kComplete, kPaused)); }

// RC-KILL-05: nothing is started where a death was not confirmed. RX-QUAR-03: quarantine is final.
TEST(Slot, ASlotIsFilledOnlyWhenItIsEmptyAndEmptiedOnlyByAKill) {
  EXPECT_THAT(Into(kLaunching), ElementsAre(kEmpty));
  EXPECT_THAT(Into(kEmpty), ElementsAre(kKilling));
  EXPECT_THAT(Into(kKilling), ElementsAre(kQuarantined));
  for (const SlotArrow& arrow : SlotArrows()) {
    EXPECT_FALSE(arrow.from == kRetired);
    EXPECT_FALSE(arrow.from == kQuarantined && IsLive(arrow.to));
  }
}

TEST(Slot, NoArrowIsListedTwice) {
  for (const SlotArrow& arrow : SlotArrows()) {
    EXPECT_EQ(std::count(SlotArrows().begin(), SlotArrows().end(), arrow), 1);
    EXPECT_TRUE(IsSlotArrow(arrow.from, arrow.to));
  }
  EXPECT_FALSE(IsSlotArrow(kStale, kServing));
}

TEST(Slot, EveryStateHasANameAndLiveOnesAreThoseThatCommandsMayReach) {
  std::set<std::string_view> names;
  std::vector<SlotState> live;
  for (int i = 0; i <= static_cast<int>(kRetired); ++i) {
    const auto state = static_cast<SlotState>(i);
    names.insert(ToString(state));
    if (IsLive(state)) {
      live.push_back(state);
    }
  }
  EXPECT_EQ(names.size(), 12U);
  EXPECT_THAT(live, ElementsAre(kStale, kBound, kUpdating, kComplete, kServing, kPaused));
}

}  // namespace
}  // namespace refit::fleet
