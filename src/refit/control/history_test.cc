// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/control/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace refit::control {
namespace {

using ::testing::ElementsAre;

AttemptId Attempt(std::uint32_t n) { return {Term(1), n}; }

TEST(History, HasWhatBecameOfEachRequestThatBegan) {
  CommitRecord commit{"a", WeightVersion(1), Digest{{1, 2}}, "step-1", {}, {{SlotIndex(1), "it died"}}};
  commit.members.push_back({SlotIndex(0), Incarnation{{5, 5}}, Attempt(2)});
  const History history = MakeHistory({{RunRecord{RunId{{7, 7}}}, 1},
                                       {TermRecord{Term(1)}, 2},
                                       {IntentRecord{"a", WeightVersion(1), Attempt(1), "step-1"}, 10},
                                       {AbortedRecord{Attempt(1), WeightVersion(1), true}, 11},
                                       {IntentRecord{"a", WeightVersion(1), Attempt(2), "step-1"}, 12},
                                       {commit, 20},
                                       {OutcomeRecord{"a", WeightVersion(1), true, OkStatus()}, 21},
                                       {IntentRecord{"b", WeightVersion(2), Attempt(3), ""}, 30},
                                       {OutcomeRecord{"b", WeightVersion(2), false, Unavailable("no engine")}, 40},
                                       {IntentRecord{"c", WeightVersion(3), Attempt(4), ""}, 50}});
  EXPECT_EQ(history.run, (RunId{{7, 7}}));
  ASSERT_EQ(history.entries.size(), 3U);
  const HistoryEntry& a = history.entries[0];
  EXPECT_TRUE(a.committed);
  EXPECT_EQ(a.attempts, 2U);
  EXPECT_EQ(a.began_at, 10U);
  EXPECT_EQ(a.ended_at, 20U) << "of the decision, not of the answer";
  EXPECT_EQ(a.digest, (Digest{{1, 2}}));
  EXPECT_THAT(a.members, ElementsAre(SlotIndex(0)));
  EXPECT_THAT(a.excluded, ElementsAre(std::pair(SlotIndex(1), std::string("it died"))));
  EXPECT_EQ(a.status, OkStatus());
  const HistoryEntry& b = history.entries[1];
  EXPECT_FALSE(b.committed);
  EXPECT_EQ(b.ended_at, 40U);
  EXPECT_EQ(b.status, Unavailable("no engine"));
  const HistoryEntry& c = history.entries[2];
  EXPECT_FALSE(c.status.has_value());
  EXPECT_EQ(c.ended_at, 0U);
}

}  // namespace
}  // namespace refit::control
