// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/slot_ledger.h"

#include <gtest/gtest.h>

#include <vector>

namespace refit::stream {
namespace {

const AttemptId kFirst{Term(1), 1};
const AttemptId kSecond{Term(1), 2};
const Incarnation kLife{{1, 1}};
const Incarnation kNextLife{{1, 2}};

using Fates = std::vector<MemoryFate>;
constexpr MemoryFate kKeep = MemoryFate::kKeep;
constexpr MemoryFate kReplace = MemoryFate::kReplace;

class SlotLedgerTest : public testing::Test {
 protected:
  Fates Open(AttemptId attempt, const Incarnation& life, const std::vector<Readers>& readers,
             PackUnit unit = PackUnit::kLoad) {
    const auto review = ledger.Open(attempt, life, unit, readers, 2);
    EXPECT_TRUE(review.has_value()) << review.status().ToString();
    return review.has_value() ? review->fates : Fates{};
  }
  void Send(std::size_t slot, LoadSeq seq) {
    ledger.Fill(slot, seq);
    ledger.Announce(slot);
  }

  SlotLedger ledger;
};

TEST_F(SlotLedgerTest, ASlotIsFilledAgainOnlyAfterItsRelease) {  // RX-XFER-04
  Open(kFirst, kLife, {});
  EXPECT_TRUE(ledger.MayFill(0));
  Send(0, LoadSeq(0));
  EXPECT_FALSE(ledger.MayFill(0));
  EXPECT_TRUE(ledger.MayFill(1));
  EXPECT_TRUE(ledger.Release(kFirst, LoadSeq(0)));
  EXPECT_TRUE(ledger.MayFill(0));
  EXPECT_FALSE(ledger.any_out());
}

TEST_F(SlotLedgerTest, AReleaseOfAnotherAttemptFreesNothingAndIsCounted) {  // RX-XFER-02, RX-ID-02
  Open(kFirst, kLife, {});
  Send(0, LoadSeq(0));
  ledger.Stop();
  Open(kSecond, kLife, {Readers::kGone, Readers::kGone});
  Send(0, LoadSeq(0));
  EXPECT_FALSE(ledger.Release(kFirst, LoadSeq(0)));
  EXPECT_FALSE(ledger.MayFill(0));
  EXPECT_EQ(ledger.refused(), 1U);
  EXPECT_TRUE(ledger.Release(kSecond, LoadSeq(0)));
}

TEST_F(SlotLedgerTest, AReleaseOfALoadThatIsNotAnnouncedFreesNothing) {  // RX-XFER-02
  Open(kFirst, kLife, {});
  Send(0, LoadSeq(0));
  ledger.Fill(1, LoadSeq(1));
  EXPECT_FALSE(ledger.Release(kFirst, LoadSeq(1)));
  EXPECT_FALSE(ledger.Release(kFirst, LoadSeq(7)));
  EXPECT_TRUE(ledger.Release(kFirst, LoadSeq(0)));
  EXPECT_FALSE(ledger.Release(kFirst, LoadSeq(0)));
  EXPECT_FALSE(ledger.MayFill(1));
  EXPECT_EQ(ledger.refused(), 3U);
}

TEST_F(SlotLedgerTest, NothingIsFilledBetweenAnAttemptsEndAndTheReceiversWordThatItIsFenced) {  // RX-XFER-05
  EXPECT_FALSE(ledger.MayFill(0));
  Open(kFirst, kLife, {});
  Send(0, LoadSeq(0));
  ledger.Stop();
  EXPECT_FALSE(ledger.MayFill(0));
  EXPECT_FALSE(ledger.MayFill(1));
  EXPECT_FALSE(ledger.Release(kFirst, LoadSeq(0)));  // too late: the receiver's next stream says it all
  EXPECT_TRUE(ledger.any_out());
  Open(kSecond, kLife, {Readers::kGone, Readers::kGone});
  EXPECT_TRUE(ledger.MayFill(0));
}

TEST_F(SlotLedgerTest, AnAttemptThatIsNotNewerIsNoWordOfAFence) {  // RX-XFER-05
  Open(kSecond, kLife, {});
  Send(0, LoadSeq(0));
  for (const AttemptId attempt : {kFirst, kSecond}) {
    const auto again = ledger.Open(attempt, kLife, PackUnit::kLoad, {}, 2);
    EXPECT_EQ(again.status().code(), StatusCode::kAborted);
    EXPECT_FALSE(ledger.MayFill(0));
  }
}

// A refusal before any rank opened the payload never gives the count back, and a death leaves it as it was.
TEST_F(SlotLedgerTest, ASlotWhoseCountIsOutIsReplacedWhoeverComesNext) {  // RX-XFER-12, RC-PAY-09
  for (const Incarnation& next : {kLife, kNextLife}) {
    ledger = {};
    Open(kFirst, kLife, {});
    Send(0, LoadSeq(0));
    Send(1, LoadSeq(1));
    ledger.Stop();
    EXPECT_EQ(Open(kSecond, next, {Readers::kThere, Readers::kGone}), (Fates{kReplace, kKeep}));
    EXPECT_TRUE(ledger.MayFill(0));
  }
}

// Memory of a GPU: its counts lie with the receiver, so only a release or a death says that they are back.
TEST_F(SlotLedgerTest, ASlotWithoutACountIsReplacedWhereItWasNotReleased) {  // RX-XFER-05, RX-XFER-12
  Open(kFirst, kLife, {});
  Send(0, LoadSeq(0));
  Send(1, LoadSeq(1));
  EXPECT_TRUE(ledger.Release(kFirst, LoadSeq(1)));
  ledger.Stop();
  EXPECT_EQ(Open(kSecond, kLife, {Readers::kUnknown, Readers::kUnknown}), (Fates{kReplace, kKeep}));
}

TEST_F(SlotLedgerTest, ANewLifeReadsNothingOfWhatWasLeftToAnEarlierOne) {  // RX-XFER-05: confirmed death
  Open(kFirst, kLife, {});
  Send(0, LoadSeq(0));
  ledger.Stop();
  const std::vector<Readers> unknown(2, Readers::kUnknown);
  const auto review = ledger.Open(kSecond, kNextLife, PackUnit::kLoad, unknown, 2);
  ASSERT_TRUE(review.has_value());
  EXPECT_TRUE(review->new_life);
  EXPECT_EQ(review->fates, (Fates{kKeep, kKeep}));
}

TEST_F(SlotLedgerTest, PiecesThatALinkReadAreFencedByTheReceiver) {  // RX-XFER-05, -12
  Open(kFirst, kLife, {}, PackUnit::kPiece);
  Send(0, LoadSeq(0));
  ledger.Stop();
  const std::vector<Readers> unknown(2, Readers::kUnknown);
  const auto review = ledger.Open(kSecond, kLife, PackUnit::kPiece, unknown, 2);
  ASSERT_TRUE(review.has_value());
  EXPECT_FALSE(review->new_life);
  EXPECT_EQ(review->fates, (Fates{kKeep, kKeep}));
}

}  // namespace
}  // namespace refit::stream
