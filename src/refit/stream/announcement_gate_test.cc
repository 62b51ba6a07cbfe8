// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/announcement_gate.h"

#include <gtest/gtest.h>

namespace refit::stream {
namespace {

const AttemptId kEarlier{Term(1), 1};
const AttemptId kAttempt{Term(1), 2};
const AttemptId kLater{Term(2), 1};
const Incarnation kLife{{1, 1}};
const Incarnation kEarlierLife{{1, 0}};
constexpr std::size_t kSlots = 2;

class AnnouncementGateTest : public testing::Test {
 protected:
  AnnouncementGateTest() { gate.Opened(kAttempt, kSlots); }
  Result<Arrival> Announce(std::uint64_t seq, std::size_t slot = 0, bool is_last = false) {
    return gate.Announced(kAttempt, kLife, slot, LoadSeq(seq), is_last);
  }

  AnnouncementGate gate{kAttempt, kLife};
};

TEST_F(AnnouncementGateTest, OursAreTakenInOrderUpToTheLast) {  // INV-5
  EXPECT_EQ(*Announce(0), Arrival::kTake);
  EXPECT_EQ(*Announce(1, 1), Arrival::kTake);
  EXPECT_FALSE(gate.saw_last());
  EXPECT_EQ(*Announce(2, 0, true), Arrival::kTake);
  EXPECT_TRUE(gate.saw_last());
  EXPECT_EQ(gate.dropped(), 0U);
}

TEST_F(AnnouncementGateTest, AnotherAttemptsLoadIsDroppedAndCounted) {  // RX-XFER-01, RX-ID-02, S24
  EXPECT_EQ(*gate.Announced(kEarlier, kLife, 0, LoadSeq(0), true), Arrival::kDrop);
  EXPECT_EQ(*gate.Announced(kLater, kLife, 0, LoadSeq(0), true), Arrival::kDrop);
  EXPECT_EQ(*gate.Announced(kEarlier, kLife, 9, LoadSeq(7), false), Arrival::kDrop);  // no matter what it says
  EXPECT_EQ(gate.dropped(), 3U);
  EXPECT_FALSE(gate.saw_last());
  EXPECT_EQ(*Announce(0), Arrival::kTake);
}

TEST_F(AnnouncementGateTest, ALoadForAnotherLifeIsDroppedAndCounted) {  // RX-ID-04
  EXPECT_EQ(*gate.Announced(kAttempt, kEarlierLife, 0, LoadSeq(0), false), Arrival::kDrop);
  EXPECT_EQ(gate.dropped(), 1U);
  EXPECT_EQ(*Announce(0), Arrival::kTake);
}

TEST_F(AnnouncementGateTest, ALoadOutOfOrderBreaksTheStream) {  // INV-5, RC-BKT-04
  EXPECT_EQ(*Announce(0), Arrival::kTake);
  EXPECT_EQ(Announce(0).status().code(), StatusCode::kDataLoss);  // repeated
  const Status missing = Announce(2).status();
  EXPECT_EQ(missing.code(), StatusCode::kDataLoss);
  EXPECT_EQ(missing.message(), "load 2 was announced in slot 0 of 2, expected load 1");
}

TEST_F(AnnouncementGateTest, ALoadInASlotThatThereIsNotBreaksTheStream) {  // RC-BKT-14
  EXPECT_EQ(Announce(0, kSlots).status().code(), StatusCode::kDataLoss);
}

TEST_F(AnnouncementGateTest, NothingFollowsTheLast) {  // INV-5
  EXPECT_EQ(*Announce(0, 0, true), Arrival::kTake);
  EXPECT_EQ(Announce(1).status().message(), "load 1 was announced after the last one");
}

TEST(AnnouncementGate, AnotherAttemptsStreamIsNeitherOpenedNorFailed) {  // RX-ID-02
  AnnouncementGate gate(kAttempt, kLife);
  EXPECT_EQ(gate.Opened(kEarlier, kSlots), Arrival::kDrop);
  EXPECT_EQ(gate.Announced(kAttempt, kLife, 0, LoadSeq(0), false).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(gate.Failed(kEarlier), Arrival::kDrop);
  EXPECT_EQ(gate.dropped(), 2U);
  EXPECT_EQ(gate.Opened(kAttempt, kSlots), Arrival::kTake);
  EXPECT_EQ(gate.Failed(kAttempt), Arrival::kTake);
}

}  // namespace
}  // namespace refit::stream
