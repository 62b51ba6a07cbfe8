// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// The golden vectors of the contract's §24, and what a bucket must refuse.

#include "refit/stream/bucket_packer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "refit/base/str.h"

namespace refit::stream {
namespace {

using weights::DType;

// A tensor of the given element size and bytes; the source of its bytes is the tensor of the same index.
struct Vector {
  std::string name;
  std::int64_t item_size = 1;
  std::int64_t size = 0;
};

DType DTypeOf(std::int64_t item_size) {
  switch (item_size) {
    case 2: return DType::kBfloat16;
    case 4: return DType::kFloat32;
    case 8: return DType::kFloat64;
    default: return DType::kUint8;
  }
}

weights::ReshardPlan PlanOf(const std::vector<Vector>& vectors) {
  weights::ReshardPlan plan;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const Vector& v = vectors[i];
    weights::PlannedTensor tensor{.spec = {v.name, DTypeOf(v.item_size), {v.size / v.item_size}},
                                  .size = static_cast<ByteCount>(v.size),
                                  .copies = {}};
    if (v.size > 0) {
      tensor.copies.push_back({.source = i, .source_offset = 0, .target_offset = 0, .size = tensor.size});
    }
    plan.tensors.push_back(tensor);
  }
  return plan;
}

// "(a,0,16,0) | (b,0,2,0)": the notation of §24.
std::string Show(const std::vector<PackedBucket>& buckets) {
  std::string out;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i].bucket;
    EXPECT_EQ(bucket.seq, LoadSeq(i));
    EXPECT_EQ(bucket.is_last, i + 1 == buckets.size());
    out += i == 0 ? "" : "| ";
    for (const Entry& entry : bucket.entries) {
      out += StrCat("(", entry.spec.name, ",", entry.chunk_offset, ",", entry.chunk_size, ",", entry.offset, ") ");
    }
    const ByteCount end = bucket.entries.empty() ? 0 : bucket.entries.back().offset + bucket.entries.back().chunk_size;
    EXPECT_EQ(bucket.used, end);
  }
  return out;
}

std::string PackAndShow(const std::vector<Vector>& vectors, PackUnit unit, ByteCount capacity) {
  const auto buckets = Pack(PlanOf(vectors), unit, capacity);
  if (!buckets.ok()) {
    return buckets.status().ToString();
  }
  return Show(*buckets);
}

const std::vector<Vector> kSpanning = {{"small", 2, 6}, {"spanning", 4, 148}, {"tail", 8, 40}};

TEST(BucketPackerTest, MixedDTypesShareABucketAtTheirOwnAlignment) {  // RC-BKT-01, -02, -05
  const auto buckets = Pack(PlanOf({{"bf16_w", 2, 6}, {"fp32_w", 4, 4}}), PackUnit::kPiece, 64).value();
  EXPECT_EQ(Show(buckets), "(bf16_w,0,6,0) (fp32_w,0,4,8) ");
  EXPECT_EQ(buckets[0].bucket.entries[0].spec.dtype, DType::kBfloat16);
  EXPECT_EQ(buckets[0].bucket.entries[1].spec.dtype, DType::kFloat32);
}

TEST(BucketPackerTest, ATensorLargerThanABucketSpansSeveral) {  // RC-BKT-01, -03
  EXPECT_EQ(PackAndShow(kSpanning, PackUnit::kPiece, 32),
            "(small,0,6,0) | (spanning,0,32,0) | (spanning,32,32,0) | (spanning,64,32,0) | (spanning,96,32,0) | "
            "(spanning,128,20,0) | (tail,0,32,0) | (tail,32,8,0) ");
}

TEST(BucketPackerTest, CutsMayFallInsideAnElement) {  // RC-BKT-01
  std::string expected = "(small,0,6,0) ";
  for (int i = 0; i < 8; ++i) {
    expected += StrCat("| (spanning,", 17 * i, ",17,0) ");
  }
  expected += "| (spanning,136,12,0) | (tail,0,17,0) | (tail,17,17,0) | (tail,34,6,0) ";
  EXPECT_EQ(PackAndShow(kSpanning, PackUnit::kPiece, 17), expected);
  EXPECT_EQ(std::count(expected.begin(), expected.end(), '|') + 1, 13);
}

TEST(BucketPackerTest, AFullBucketIsClosedByTheNextTensor) {  // RC-BKT-01
  EXPECT_EQ(PackAndShow({{"a", 2, 16}, {"b", 2, 2}}, PackUnit::kPiece, 16), "(a,0,16,0) | (b,0,2,0) ");
}

TEST(BucketPackerTest, RoundingUpMayOpenTheNextBucket) {  // RC-BKT-01, -02
  EXPECT_EQ(PackAndShow({{"a", 2, 10}, {"b", 8, 8}}, PackUnit::kPiece, 16), "(a,0,10,0) | (b,0,8,0) ");
}

TEST(BucketPackerTest, AnExactFitStaysInItsBucket) {  // RC-BKT-01
  EXPECT_EQ(PackAndShow({{"a", 2, 10}, {"b", 2, 6}}, PackUnit::kPiece, 16), "(a,0,10,0) (b,0,6,10) ");
}

TEST(BucketPackerTest, AnEmptyStreamIsOneEmptyLastBucket) {  // RC-BKT-01, -11
  for (const PackUnit unit : {PackUnit::kPiece, PackUnit::kLoad}) {
    const auto buckets = Pack(PlanOf({}), unit, 16).value();
    ASSERT_EQ(buckets.size(), 1u);
    EXPECT_EQ(buckets[0].bucket, (Bucket{.seq = LoadSeq(0), .entries = {}, .used = 0, .is_last = true}));
    EXPECT_TRUE(buckets[0].copies.empty());
    EXPECT_EQ(LargestBucket(buckets), 1u);
  }
}

TEST(BucketPackerTest, ALargeTensorGetsALoadOfItsOwn) {  // RC-PAY-08
  EXPECT_EQ(PackAndShow({{"a", 2, 10}, {"big", 2, 40}, {"c", 2, 2}}, PackUnit::kLoad, 16),
            "(a,0,10,0) | (big,0,40,0) | (c,0,2,0) ");
  // 3·B+5 bytes, first, last and between zero-element neighbours.
  EXPECT_EQ(PackAndShow({{"big", 1, 53}, {"none", 1, 0}, {"c", 1, 1}, {"large", 1, 53}}, PackUnit::kLoad, 16),
            "(big,0,53,0) | (none,0,0,0) (c,0,1,0) | (large,0,53,0) ");
  EXPECT_EQ(LargestBucket(Pack(PlanOf({{"big", 1, 53}}), PackUnit::kLoad, 16).value()), 53u);
}

TEST(BucketPackerTest, ATensorWithoutElementsIsDelivered) {  // RC-BKT-12, S81
  weights::ReshardPlan plan = PlanOf({{"a", 2, 4}, {"none", 4, 0}});
  plan.tensors[1].spec.shape = {0, 4096};
  const auto buckets = Pack(plan, PackUnit::kPiece, 16).value();
  ASSERT_EQ(buckets[0].bucket.entries.size(), 2u);
  EXPECT_EQ(buckets[0].bucket.entries[1].spec, plan.tensors[1].spec);
  EXPECT_EQ(Show(buckets), "(a,0,4,0) (none,0,0,4) ");
}

TEST(BucketPackerTest, ANameThatOccursTwiceIsRefused) {  // RC-BKT-12, S81
  const Status status = Pack(PlanOf({{"a", 2, 4}, {"b", 2, 4}, {"a", 2, 8}}), PackUnit::kLoad, 16).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("tensor a occurs twice"), std::string::npos) << status.message();
}

TEST(BucketPackerTest, BucketsOfZeroBytesAreRefused) {
  EXPECT_EQ(Pack(PlanOf({{"a", 2, 4}}), PackUnit::kPiece, 0).status().code(), StatusCode::kInvalidArgument);
}

TEST(BucketPackerTest, AFusedTensorIsCopiedFromAllItsSources) {
  weights::ReshardPlan plan;
  plan.tensors.push_back({.spec = {"qkv", DType::kUint8, {10}},
                          .size = 10,
                          .copies = {{.source = 4, .source_offset = 6, .target_offset = 0, .size = 6},
                                     {.source = 1, .source_offset = 0, .target_offset = 6, .size = 4}}});
  const auto buckets = Pack(plan, PackUnit::kPiece, 8).value();
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].copies,
            (CopyPlan{{.source = 4, .source_offset = 6, .target_offset = 0, .size = 6, .entry = 0},
                      {.source = 1, .source_offset = 0, .target_offset = 6, .size = 2, .entry = 0}}));
  EXPECT_EQ(buckets[1].copies,
            (CopyPlan{{.source = 1, .source_offset = 2, .target_offset = 0, .size = 2, .entry = 0}}));
}

}  // namespace
}  // namespace refit::stream
