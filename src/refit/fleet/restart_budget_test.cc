// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/restart_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace refit::fleet {
namespace {

using std::chrono::seconds;

constexpr Instant kStart{};

RestartOptions Often() {
  return {.max_restarts = 10, .window = seconds(1000), .first_backoff = seconds(1), .max_backoff = seconds(60)};
}

// RX-QUAR-04, S37: three within the window, then the slot is retired.
TEST(RestartBudget, AFlappingSlotIsRetired) {
  Prng prng(1);
  RestartBudget budget({.window = seconds(1000), .first_backoff = seconds(1), .max_backoff = seconds(60)});
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(budget.Charge(kStart + seconds(i), prng), kNever);
  }
  EXPECT_EQ(budget.Charge(kStart + seconds(999), prng), kNever);
  EXPECT_EQ(budget.Charge(kStart + seconds(999), prng), kNever) << "a refusal costs nothing, and gives nothing back";
}

// RX-QUAR-04: the window slides.
TEST(RestartBudget, WhatIsOlderThanTheWindowDoesNotCount) {
  Prng prng(1);
  RestartBudget budget({.window = seconds(1000), .first_backoff = seconds(1), .max_backoff = seconds(60)});
  for (int i = 0; i < 3; ++i) {
    budget.Charge(kStart + seconds(10 * i), prng);
  }
  const Instant freed = kStart + seconds(1000);
  EXPECT_EQ(budget.Charge(freed - Duration(1), prng), kNever);
  EXPECT_LT(budget.Charge(freed, prng), kNever);
  EXPECT_EQ(budget.Charge(freed, prng), kNever) << "one of three has left the window";
}

// RX-QUAR-04: 1 s, doubled up to 60 s; the jitter shortens it by a half at most.
TEST(RestartBudget, BackOffDoublesUpToItsMaximum) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Prng prng(seed);
    RestartBudget budget(Often());
    for (const int whole : {1, 2, 4, 8, 16, 32, 60, 60, 60}) {
      const Duration waits = budget.Charge(kStart, prng) - kStart;
      EXPECT_GE(waits, seconds(whole) / 2);
      EXPECT_LE(waits, seconds(whole));
    }
  }
}

// RX-QUAR-04: slots that fell together do not come back together.
TEST(RestartBudget, BackOffIsJittered) {
  std::set<Instant> starts;
  Prng prng(7);
  for (int slot = 0; slot < 10; ++slot) {
    starts.insert(RestartBudget(Often()).Charge(kStart, prng));
  }
  EXPECT_GT(starts.size(), 8U);
}

// RX-QUAR-05, -08: a failure that was not the slot's is not charged.
TEST(RestartBudget, ARefundTakesTheLastChargeBack) {
  Prng prng(1);
  RestartBudget budget({.max_restarts = 1, .window = seconds(1000), .first_backoff = seconds(1)});
  budget.Refund();
  budget.Charge(kStart, prng);
  budget.Refund();
  EXPECT_LT(budget.Charge(kStart, prng), kNever);
  EXPECT_EQ(budget.Charge(kStart, prng), kNever);
}

}  // namespace
}  // namespace refit::fleet
