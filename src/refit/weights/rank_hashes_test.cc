// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/rank_hashes.h"

#include <gtest/gtest.h>

namespace refit::weights {
namespace {

const std::vector<RankHashes> kExpected = {{TpRank(0), {{"a", "1"}, {"b", "2"}}},
                                           {TpRank(1), {{"a", "3"}, {"b", "4"}}}};

// RX-SUM-05: the set of names and every hash, on every rank.
TEST(CompareRankHashesTest, EqualRanksHaveNoDifference) {
  EXPECT_TRUE(CompareRankHashes(kExpected, {kExpected[1], kExpected[0]}).empty());
}

TEST(CompareRankHashesTest, AHashThatDiffersOnALaterRankIsFound) {
  std::vector<RankHashes> actual = kExpected;
  actual[1].hashes["b"] = "5";
  EXPECT_EQ(CompareRankHashes(kExpected, actual), (std::vector<HashDifference>{{TpRank(1), "b", "4", "5"}}));
}

TEST(CompareRankHashesTest, ANameOnOneSideOnlyIsADifference) {
  std::vector<RankHashes> actual = kExpected;
  actual[0].hashes = {{"b", "2"}, {"c", "9"}};
  EXPECT_EQ(CompareRankHashes(kExpected, actual),
            (std::vector<HashDifference>{{TpRank(0), "a", "1", ""}, {TpRank(0), "c", "", "9"}}));
}

TEST(CompareRankHashesTest, ARankOnOneSideOnlyIsADifference) {
  EXPECT_EQ(CompareRankHashes(kExpected, {kExpected[0]}).size(), 1u);
  EXPECT_EQ(CompareRankHashes({kExpected[0]}, kExpected).size(), 1u);
}

}  // namespace
}  // namespace refit::weights
