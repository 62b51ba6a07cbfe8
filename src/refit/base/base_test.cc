// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "refit/base/bytes.h"
#include "refit/base/check.h"
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
  EXPECT_EQ(OkStatus().ToString(), "OK");
}

// Numbers and names go over the wire and into scripts: both are gRPC's, for ever.
TEST(Status, CodesAreGrpcs) {
  constexpr std::array<std::string_view, 16> kNames = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS"};
  for (std::size_t code = 0; code < kNames.size(); ++code) {
    EXPECT_EQ(ToString(static_cast<StatusCode>(code)), kNames[code]) << code;
  }
  EXPECT_EQ(ToString(static_cast<StatusCode>(16)), "UNKNOWN");
}

TEST(Bytes, SizesFromOutsideDoNotWrap) {
  EXPECT_FALSE(CheckedMultiply(1ULL << 40, 1ULL << 40).has_value());
  EXPECT_FALSE(CheckedAdd(~0ULL, 1).has_value());
  EXPECT_EQ(RoundUp(6, 4), 8U);
}

TEST(Bytes, HexBothWays) {
  EXPECT_EQ(ToHex(AsBytes("\x01\xfe")), "01fe");
  EXPECT_EQ(FromHex("01fe"), "\x01\xfe");
  EXPECT_EQ(FromHex("01FE"), "\x01\xfe");
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

TEST(CheckDeathTest, AFailedCheckNamesTheConditionAndWhyItHolds) {
  REFIT_CHECK(1 < 2, "never printed");
  EXPECT_DEATH(REFIT_CHECK(2 < 1, "numbers are ordered"), "check failed: 2 < 1 .numbers are ordered");
}

}  // namespace
}  // namespace refit
