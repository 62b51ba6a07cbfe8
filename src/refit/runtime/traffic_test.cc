// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Settled C9: what is stale, what is mixed.

#include "refit/runtime/traffic.h"

#include <gtest/gtest.h>

#include <chrono>

namespace refit::runtime {
namespace {

Instant At(int second) { return Instant(std::chrono::seconds(second)); }

// Version 1 is published around second 10, version 2 around second 20.
class TrafficJudgeTest : public testing::Test {
 protected:
  TrafficJudgeTest() {
    judge_.Add(WeightVersion(1), At(9), At(11), {1, 1, 1, 1});
    judge_.Add(WeightVersion(2), At(19), At(21), {2, 2, 2, 2});
  }
  TrafficCounts Judge(int arrived, int ended, std::vector<std::int32_t> tokens,
                      std::vector<engine::VersionSpan> versions) {
    engine::Generation said;
    said.token_ids = std::move(tokens);
    said.versions = std::move(versions);
    return judge_.Judge({{SlotIndex(0), At(arrived), At(ended), std::move(said)}});
  }
  TrafficJudge judge_;
};

TEST_F(TrafficJudgeTest, AnAnswerOfThePublishedVersionIsFresh) {
  EXPECT_EQ(Judge(12, 13, {1, 1}, {{"1", 0, 2}}).worst, "");
  EXPECT_EQ(Judge(22, 23, {2, 2, 2, 2}, {{"2", 0, 4}}).worst, "");
}

TEST_F(TrafficJudgeTest, AnAnswerThatArrivedBeforeTheNextVersionMayBeOfTheOldOne) {
  EXPECT_EQ(Judge(18, 25, {1, 1}, {{"1", 0, 2}}).stale, 0U);
  EXPECT_EQ(Judge(20, 25, {1, 1}, {{"1", 0, 2}}).stale, 0U) << "the decision may have come right after its arrival";
}

TEST_F(TrafficJudgeTest, AnAnswerOfAnEarlierVersionOrOfOneThatNobodyPublishedIsStale) {
  EXPECT_EQ(Judge(22, 23, {1, 1}, {{"1", 0, 2}}).stale, 1U);
  EXPECT_EQ(Judge(12, 13, {2, 2}, {{"2", 0, 2}}).stale, 1U) << "it is not decided yet";
  EXPECT_EQ(Judge(12, 13, {9, 9}, {{"default", 0, 2}}).stale, 1U);
}

TEST_F(TrafficJudgeTest, AnAnswerWhoseTokensAreNotItsVersionsIsMixed) {
  const TrafficCounts counts = Judge(12, 13, {1, 2}, {{"1", 0, 2}});
  EXPECT_EQ(counts.mixed, 1U);
  EXPECT_EQ(counts.stale, 0U);
  EXPECT_EQ(counts.worst, "engine 0 gave a mixed answer of version 1");
  EXPECT_EQ(Judge(12, 13, {1}, {}).mixed, 1U) << "it does not say what it is of";
}

TEST_F(TrafficJudgeTest, AnAnswerThatSpansVersionsIsJudgedByItsFirstSpanAndCountedApart) {
  const TrafficCounts counts = Judge(18, 25, {1, 1, 7, 8}, {{"1", 0, 2}, {"2", 2, 4}});
  EXPECT_EQ(counts.spanning, 1U);
  EXPECT_EQ(counts.mixed + counts.stale, 0U);
  EXPECT_EQ(Judge(18, 25, {1, 5, 7, 8}, {{"1", 0, 2}, {"2", 2, 4}}).mixed, 1U);
}

}  // namespace
}  // namespace refit::runtime
