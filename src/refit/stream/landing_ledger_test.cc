// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/landing_ledger.h"

#include <gtest/gtest.h>

namespace refit::stream {
namespace {

TEST(LandingTurnsTest, ALoadIsOpenedWhenTheOneTwoBeforeItWasLetGo) {  // RC-RX-02
  LandingTurns turns;
  EXPECT_TRUE(turns.MayOpen(0));
  EXPECT_TRUE(turns.MayOpen(1));
  EXPECT_FALSE(turns.MayOpen(2));
  turns.GiveBack(0);
  EXPECT_TRUE(turns.MayOpen(2));
  EXPECT_FALSE(turns.MayOpen(3));
  turns.GiveBack(1);
  turns.GiveBack(0);  // a repeated word takes nothing back
  EXPECT_TRUE(turns.MayOpen(3));
}

TEST(LandingLedgerTest, APlaceThatARankMayStillReadIsLeftToIt) {  // RX-XFER-12
  EXPECT_EQ(LandingLedger::Reuse(Readers::kGone), MemoryFate::kKeep);
  EXPECT_EQ(LandingLedger::Reuse(Readers::kThere), MemoryFate::kReplace);
  EXPECT_EQ(LandingLedger::Reuse(Readers::kUnknown), MemoryFate::kReplace);
}

TEST(LandingLedgerTest, PlacesAreUsedAgainOnlyWhereNoReadMayStillLand) {  // RX-XFER-03
  LandingLedger ledger;
  EXPECT_EQ(ledger.EndTransfer(LateReads::kNone), MemoryFate::kKeep);
  EXPECT_EQ(ledger.EndTransfer(LateReads::kPossible), MemoryFate::kReplace);
  EXPECT_EQ(ledger.EndTransfer(LateReads::kNone), MemoryFate::kKeep);
}

TEST(LandingLedgerTest, ASecondRefusedFenceExhaustsTheLife) {  // RX-XFER-07
  LandingLedger ledger;
  ledger.EndTransfer(LateReads::kPossible);
  ledger.EndTransfer(LateReads::kNone);
  EXPECT_FALSE(ledger.exhausted());
  ledger.EndTransfer(LateReads::kPossible);
  EXPECT_TRUE(ledger.exhausted());
}

}  // namespace
}  // namespace refit::stream
