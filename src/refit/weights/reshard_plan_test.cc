// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/reshard_plan.h"

#include <gtest/gtest.h>

#include <limits>

namespace refit::weights {
namespace {

const Manifest& Source() {
  static const Manifest manifest =
      Manifest::Make({{"a", DType::kUint8, {10}}, {"none", DType::kUint8, {0, 4}}, {"b", DType::kFloat32, {2, 3}}})
          .value();
  return manifest;
}

TEST(ReshardPlanTest, TheFullPlanDeliversWholeTensorsInOrder) {
  const ReshardPlan plan = MakeFullPlan(Source());
  EXPECT_TRUE(CheckPlan(plan, Source()).ok());
  ASSERT_EQ(plan.tensors.size(), 3u);
  EXPECT_EQ(plan.tensors[2].spec, Source().tensors()[2]);
  EXPECT_EQ(plan.tensors[2].copies,
            (std::vector<PlannedCopy>{{.source = 2, .source_offset = 0, .target_offset = 0, .size = 24}}));
  EXPECT_TRUE(plan.tensors[1].copies.empty());  // RC-BKT-12: delivered, with nothing to copy
}

// One delivered tensor of 10 bytes, made from these copies.
Status Check(std::vector<PlannedCopy> copies) {
  const PlannedTensor tensor{.spec = {"x", DType::kUint8, {10}}, .size = 10, .copies = std::move(copies)};
  return CheckPlan({.tensors = {tensor}}, Source());
}

TEST(ReshardPlanTest, ATensorMayBeMadeOfSeveralSources) { EXPECT_TRUE(Check({{2, 20, 0, 4}, {0, 1, 4, 6}}).ok()); }

TEST(ReshardPlanTest, GapsOverlapsAndMissingEndsAreRefused) {
  EXPECT_FALSE(Check({{0, 0, 0, 4}, {0, 4, 5, 5}}).ok());
  EXPECT_FALSE(Check({{0, 0, 0, 4}, {0, 4, 3, 7}}).ok());
  EXPECT_FALSE(Check({{0, 0, 0, 9}}).ok());
  EXPECT_FALSE(Check({{2, 0, 0, 11}}).ok());
  EXPECT_FALSE(Check({{0, 0, 4, 6}, {2, 0, 0, 4}}).ok());
  EXPECT_FALSE(Check({{0, 0, 0, 0}, {0, 0, 0, 10}}).ok());
  EXPECT_FALSE(Check({}).ok());
}

TEST(ReshardPlanTest, CopiesThatLeaveTheirSourceAreRefused) {
  EXPECT_FALSE(Check({{3, 0, 0, 10}}).ok());
  EXPECT_FALSE(Check({{0, 1, 0, 10}}).ok());
  EXPECT_FALSE(Check({{0, std::numeric_limits<ByteCount>::max(), 0, 10}}).ok());
}

TEST(ReshardPlanTest, ASizeThatIsNotTheSpecsIsRefused) {
  ReshardPlan plan = MakeFullPlan(Source());
  plan.tensors[0].size = 9;
  EXPECT_FALSE(CheckPlan(plan, Source()).ok());
}

}  // namespace
}  // namespace refit::weights
