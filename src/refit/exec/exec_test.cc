// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "refit/exec/clock.h"
#include "refit/exec/mailbox.h"
#include "refit/exec/random.h"

namespace refit::exec {
namespace {

using std::chrono::milliseconds;

TEST(Mailbox, AFullOneRefusesInsteadOfWaiting) {
  Mailbox<int> box(1);
  EXPECT_TRUE(box.Push(1).ok());
  EXPECT_EQ(box.Push(2).code(), StatusCode::kResourceExhausted);
}

TEST(Mailbox, PopEndsAtItsDeadlineAndAfterClose) {
  Mailbox<int> box(4);
  EXPECT_FALSE(box.Pop(Now() + milliseconds(1)).has_value());
  ASSERT_TRUE(box.Push(7).ok());
  box.Close();
  EXPECT_EQ(box.Pop(kNever), 7);
  EXPECT_FALSE(box.Pop(kNever).has_value());
  EXPECT_EQ(box.Push(8).code(), StatusCode::kCancelled);
}

TEST(Mailbox, AWaitingConsumerIsWoken) {
  Mailbox<int> box(4);
  std::jthread pusher([&box] { EXPECT_TRUE(box.Push(3).ok()); });
  EXPECT_EQ(box.Pop(Now() + std::chrono::seconds(10)), 3);
}

TEST(WaitUntil, ReturnsFalseAtTheDeadline) {
  EXPECT_FALSE(WaitUntil([] { return false; }, Now() + milliseconds(2)));
  EXPECT_TRUE(WaitUntil([] { return true; }, Now()));
}

TEST(RandomId, TwoAreNotEqual) { EXPECT_NE(RandomId(), RandomId()); }

}  // namespace
}  // namespace refit::exec
