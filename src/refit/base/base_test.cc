// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/str.h"

namespace refit {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) {
    return InvalidArgument(StrCat("value ", value, " is odd"), "give an even number");
  }
  return value / 2;
}

Result<int> Quarter(int value) {
  REFIT_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

TEST(Status, AnErrorIsOneLineWithThingValueAndRemedy) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().WithContext("input").ToString(),
            "INVALID_ARGUMENT: input: value 3 is odd (give an even number)");
  EXPECT_TRUE(OkStatus().WithContext("x").ok());
}

TEST(Status, CodesAreGrpcs) {
  EXPECT_EQ(static_cast<int>(StatusCode::kDataLoss), 15);
  EXPECT_EQ(ToString(StatusCode::kDeadlineExceeded), "DEADLINE_EXCEEDED");
}

TEST(Bytes, SizesFromOutsideDoNotWrap) {
  EXPECT_FALSE(CheckedMultiply(1ULL << 40, 1ULL << 40).has_value());
  EXPECT_FALSE(CheckedAdd(~0ULL, 1).has_value());
  EXPECT_EQ(RoundUp(6, 4), 8U);
}

TEST(Bytes, HexBothWays) {
  EXPECT_EQ(ToHex(AsBytes("\x01\xfe")), "01fe");
  EXPECT_EQ(FromHex("01fe"), "\x01\xfe");
  EXPECT_FALSE(FromHex("0g").has_value());
  EXPECT_FALSE(FromHex("012").has_value());
}

TEST(Ids, AttemptsOfDifferentTermsNeverCollide) {
  const AttemptId a{Term(3), 7};
  EXPECT_EQ(AttemptId::FromPacked(a.packed()), a);
  EXPECT_LT((AttemptId{Term(2), 9}), a);
  EXPECT_EQ(ToString(a), "3:7");
  EXPECT_EQ(ToHex(Id128{1, 2}), "00000000000000010000000000000002");
}

}  // namespace
}  // namespace refit
