// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/send_flow.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "refit/base/str.h"

namespace refit::stream {
namespace {

const AttemptId kFirst{Term(1), 1};
const AttemptId kSecond{Term(1), 2};
const Incarnation kLife{{1, 1}};
using Kind = SendStep::Kind;

std::string TextOf(const SendStep& step) {
  switch (step.kind) {
    case Kind::kFill: return StrCat("fill ", step.bucket, " in ", step.slot);
    case Kind::kSkip: return StrCat("skip ", step.bucket);
    case Kind::kAnnounce: return StrCat("announce ", step.bucket, " in ", step.slot);
    case Kind::kAwaitRelease: return "await";
    case Kind::kEnd: return "end";
  }
  return "?";
}

using Texts = std::vector<std::string>;

class SendFlowTest : public testing::Test {
 protected:
  void Open(AttemptId attempt, std::size_t slots = 2) {
    const std::vector<Readers> readers(slots, Readers::kGone);
    ASSERT_TRUE(ledger.Open(attempt, kLife, PackUnit::kLoad, readers, slots).has_value());
  }
  // Up to the next wait or the end.
  static Texts Run(SendFlow& flow) {
    Texts texts;
    do {
      texts.push_back(TextOf(flow.Next()));
    } while (texts.back() != "await" && texts.back() != "end" && texts.size() < 100);
    return texts;
  }

  SlotLedger ledger;
};

TEST_F(SendFlowTest, FillsAheadAsFarAsSlotsAreFreeAndWaitsForEveryRelease) {  // RX-XFER-04
  Open(kFirst);
  SendFlow flow(ledger, {0, 1, 0}, 1);
  EXPECT_EQ(Run(flow), (Texts{"fill 0 in 0", "announce 0 in 0", "fill 1 in 1", "announce 1 in 1", "await"}));
  EXPECT_TRUE(ledger.Release(kFirst, LoadSeq(1)));
  EXPECT_EQ(Run(flow), Texts{"await"});  // slot 0 is next
  EXPECT_TRUE(ledger.Release(kFirst, LoadSeq(0)));
  EXPECT_EQ(Run(flow), (Texts{"fill 2 in 0", "announce 2 in 0", "await"}));
  EXPECT_TRUE(ledger.Release(kFirst, LoadSeq(2)));
  EXPECT_EQ(Run(flow), Texts{"end"});
}

TEST_F(SendFlowTest, AsManyFilledOnesWaitToBeAnnouncedAsThePackerHolds) {
  Open(kFirst, 4);
  SendFlow flow(ledger, {0, 1, 2}, 2);
  EXPECT_EQ(Run(flow), (Texts{"fill 0 in 0", "fill 1 in 1", "announce 0 in 0", "fill 2 in 2", "announce 1 in 1",
                              "announce 2 in 2", "await"}));
}

TEST_F(SendFlowTest, NobodyIsAwaitedForALoadThatIsNotAnnounced) {
  Open(kFirst, 1);
  SendFlow flow(ledger, {0, 0}, 2);
  EXPECT_EQ(Run(flow), (Texts{"fill 0 in 0", "announce 0 in 0", "await"}));
}

// RX-XFER-13: its iterator may run collectives. RX-XFER-05: what the receiver may be reading stays as it is.
TEST_F(SendFlowTest, AfterAStopItGoesToTheEndOfItsSourceAndFillsNothing) {
  Open(kFirst);
  SendFlow flow(ledger, {0, 1, 0, 1, 0}, 1);
  EXPECT_EQ(Run(flow).back(), "await");
  flow.Stop();
  EXPECT_EQ(Run(flow), (Texts{"skip 2", "skip 3", "skip 4", "end"}));
}

TEST_F(SendFlowTest, WhatIsFilledAndNotAnnouncedAtAStopIsNeverAnnounced) {
  Open(kFirst);
  SendFlow flow(ledger, {0, 1}, 2);
  EXPECT_EQ(TextOf(flow.Next()), "fill 0 in 0");
  flow.Stop();
  EXPECT_EQ(Run(flow), (Texts{"skip 1", "end"}));
}

TEST_F(SendFlowTest, TheNextAttemptSendsTheCompleteSet) {  // RX-XFER-10
  Open(kFirst);
  SendFlow stopped(ledger, {0, 1}, 1);
  EXPECT_EQ(Run(stopped).back(), "await");
  stopped.Stop();
  EXPECT_EQ(Run(stopped), Texts{"end"});
  Open(kSecond);
  SendFlow flow(ledger, {0, 1}, 1);
  EXPECT_EQ(Run(flow), (Texts{"fill 0 in 0", "announce 0 in 0", "fill 1 in 1", "announce 1 in 1", "await"}));
}

}  // namespace
}  // namespace refit::stream
