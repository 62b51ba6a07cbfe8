// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/peer/send_roster.h"

#include <gtest/gtest.h>

namespace refit::peer {
namespace {

const Incarnation kPolicy{{7, 7}};
const Incarnation kEarlierPolicy{{7, 6}};
const AttemptId kPast{Term(1), 1};
const AttemptId kAttempt{Term(1), 2};
const AttemptId kNext{Term(1), 3};
const SlotIndex kOne{1};
const SlotIndex kTwo{2};

Incarnation LifeOf(SlotIndex slot) { return {{1, slot.value()}}; }

class SendRosterTest : public testing::Test {
 protected:
  SendRosterTest() { roster.Start(kAttempt, {{kOne, LifeOf(kOne), {0}}, {kTwo, LifeOf(kTwo), {0}}}); }
  static StreamRequest Request(AttemptId attempt, SlotIndex slot) { return {attempt, slot, LifeOf(slot), kPolicy}; }
  void Serve(SlotIndex slot) {
    const auto admission = roster.Admit(Request(kAttempt, slot));
    ASSERT_TRUE(admission.has_value()) << admission.status().ToString();
    ASSERT_EQ(*admission, Admission::kServe);
  }
  void End(SlotIndex slot, SendEnd end) {
    roster.End(kAttempt, slot, {end, end == SendEnd::kComplete ? OkStatus() : Aborted("why"), {}, {}});
  }

  SendRoster roster{kPolicy};
};

TEST_F(SendRosterTest, AReceiverOfTheSendIsServedOnce) {
  Serve(kOne);
  EXPECT_EQ(roster.Admit(Request(kAttempt, kOne)).status().code(), StatusCode::kAborted);
  End(kOne, SendEnd::kReceiverLeft);
  EXPECT_EQ(roster.Admit(Request(kAttempt, kOne)).status().code(), StatusCode::kAborted);
}

TEST_F(SendRosterTest, AStreamThatComesBeforeItsSendWaits) {
  EXPECT_EQ(*roster.Admit(Request(kNext, kOne)), Admission::kWait);
  roster.Start(kNext, {{kOne, LifeOf(kOne), {0}}});
  EXPECT_EQ(*roster.Admit(Request(kNext, kOne)), Admission::kServe);
}

TEST_F(SendRosterTest, AStreamOfAPastAttemptIsRefused) {  // RX-ID-02
  EXPECT_EQ(roster.Admit(Request(kPast, kOne)).status().message(), "attempt 1:1 is over");
}

TEST_F(SendRosterTest, AStreamMeantForAnEarlierLifeOfTheWorkerIsRefused) {  // RX-ID-04
  const StreamRequest request{kAttempt, kOne, LifeOf(kOne), kEarlierPolicy};
  EXPECT_EQ(roster.Admit(request).status().code(), StatusCode::kAborted);
}

TEST_F(SendRosterTest, AReceiverOfAnotherLifeOrSlotIsRefused) {  // RX-ID-04
  EXPECT_EQ(roster.Admit({kAttempt, kOne, LifeOf(kTwo), kPolicy}).status().code(), StatusCode::kAborted);
  EXPECT_EQ(roster.Admit(Request(kAttempt, SlotIndex(3))).status().code(), StatusCode::kAborted);
}

TEST_F(SendRosterTest, TheSendEndsOnceWhenEveryStreamHasEnded) {
  Serve(kOne);
  Serve(kTwo);
  End(kOne, SendEnd::kReceiverLeft);
  EXPECT_FALSE(roster.TakeWhole().has_value());
  End(kTwo, SendEnd::kComplete);
  const auto whole = roster.TakeWhole();
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->end, SendEnd::kComplete);
  EXPECT_FALSE(roster.TakeWhole().has_value());
}

TEST_F(SendRosterTest, LosingEveryReceiverIsNoFailureOfTheSend) {  // RX-XFER-13, settled C6
  Serve(kOne);
  Serve(kTwo);
  End(kOne, SendEnd::kReceiverLeft);
  End(kTwo, SendEnd::kReceiverLeft);
  EXPECT_TRUE(roster.TakeWhole()->status.ok());
}

TEST_F(SendRosterTest, AStoppedSendEndsWithTheStreamsThatRun) {  // RX-XFER-13
  Serve(kOne);
  roster.Stop();
  EXPECT_FALSE(roster.TakeWhole().has_value());
  EXPECT_EQ(roster.Admit(Request(kAttempt, kTwo)).status().code(), StatusCode::kAborted);
  End(kOne, SendEnd::kStopped);
  EXPECT_EQ(roster.TakeWhole()->end, SendEnd::kStopped);
}

TEST_F(SendRosterTest, AReceiverThatNeverOpensItsStreamCanBeGivenUp) {  // settled C6
  Serve(kOne);
  End(kOne, SendEnd::kComplete);
  EXPECT_FALSE(roster.TakeWhole().has_value());
  roster.GiveUpAbsent();
  const auto whole = roster.TakeWhole();
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->end, SendEnd::kComplete);
  EXPECT_EQ(roster.Admit(Request(kAttempt, kTwo)).status().code(), StatusCode::kAborted);
}

TEST_F(SendRosterTest, ASendToNobodyEndsAtOnce) {
  EXPECT_FALSE(SendRoster(kPolicy).TakeWhole().has_value());
  roster.Start(kNext, {});
  EXPECT_TRUE(roster.TakeWhole()->status.ok());
  roster.End(kAttempt, kOne, {});  // of the attempt before: too late
  EXPECT_FALSE(roster.TakeWhole().has_value());
}

}  // namespace
}  // namespace refit::peer
