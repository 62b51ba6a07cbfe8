// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/update_group.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace refit::stream {
namespace {

using weights::DType;

// Two ranks, three dtypes interleaved; the location tells the rank and the position.
AlignedGroup Mixed() {
  AlignedGroup group(2);
  const std::vector<std::pair<std::string, DType>> tensors = {
      {"a", DType::kBfloat16}, {"b", DType::kFloat32}, {"c", DType::kBfloat16}, {"d", DType::kInt8}};
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      group[r].push_back({.spec = {tensors[i].first, tensors[i].second, {4}}, .location = 10 * r + i});
    }
  }
  return group;
}

std::vector<std::size_t> Locations(const Batch& batch) {
  std::vector<std::size_t> out;
  for (const BatchTensor& tensor : batch) {
    out.push_back(tensor.location);
  }
  return out;
}

using Places = std::vector<std::size_t>;

TEST(SplitIntoCallsTest, MixedDTypesAreOneCompleteCall) {  // RC-PAY-01, RC-BKT-05
  const auto calls = SplitIntoCalls(Mixed(), DTypeSplit::kMixed).value();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(Locations(calls[0][0]), (Places{0, 1, 2, 3}));
  EXPECT_EQ(Locations(calls[0][1]), (Places{10, 11, 12, 13}));
}

TEST(SplitIntoCallsTest, StrictMakesOneCallPerDTypeInOrderOfFirstAppearance) {  // RC-PAY-01
  const auto calls = SplitIntoCalls(Mixed(), DTypeSplit::kByDType).value();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(Locations(calls[0][0]), (Places{0, 2}));
  EXPECT_EQ(Locations(calls[0][1]), (Places{10, 12}));
  EXPECT_EQ(Locations(calls[1][1]), (Places{11}));
  EXPECT_EQ(Locations(calls[2][0]), (Places{3}));
}

TEST(SplitIntoCallsTest, NothingToSendIsNoCall) {
  EXPECT_TRUE(SplitIntoCalls({}, DTypeSplit::kMixed).value().empty());
  EXPECT_TRUE(SplitIntoCalls(AlignedGroup(2), DTypeSplit::kByDType).value().empty());
}

TEST(SplitIntoCallsTest, RanksThatDisagreeOnNamesAreAnError) {  // RC-PAY-02
  AlignedGroup group = Mixed();
  group[1][2].spec.name = "x";
  for (const DTypeSplit split : {DTypeSplit::kMixed, DTypeSplit::kByDType}) {
    const Status status = SplitIntoCalls(group, split).status();
    EXPECT_EQ(status.message(), "rank 1 has bfloat16 tensors [a, x], rank 0 has [a, c]");
  }
}

TEST(SplitIntoCallsTest, RanksThatDisagreeOnDTypesAreAnError) {  // RC-PAY-02
  AlignedGroup group = Mixed();
  group[1].push_back({.spec = {"e", DType::kInt64, {4}}, .location = 14});
  EXPECT_EQ(SplitIntoCalls(group, DTypeSplit::kMixed).status().message(),
            "rank 1 has int64 tensors [e], rank 0 has []");
  group = Mixed();
  group[1].pop_back();
  EXPECT_EQ(SplitIntoCalls(group, DTypeSplit::kByDType).status().message(),
            "rank 1 has int8 tensors [], rank 0 has [d]");
  group = Mixed();
  group[0].clear();
  EXPECT_FALSE(SplitIntoCalls(group, DTypeSplit::kMixed).ok());
}

}  // namespace
}  // namespace refit::stream
