// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/bucket.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/fake_hasher.h"

namespace refit::stream {
namespace {

using weights::DType;

constexpr ByteCount kCapacity = 64;
constexpr std::int64_t kHuge = std::int64_t{1} << 62;

Entry Whole(std::string name, weights::Shape shape, ByteCount offset, DType dtype = DType::kBfloat16) {
  Entry entry{.spec = {std::move(name), dtype, std::move(shape)}, .chunk_offset = 0, .chunk_size = 0, .offset = offset};
  entry.chunk_size = SizeOf(entry.spec).has_value() ? SizeOf(entry.spec).value() : 0;
  return entry;
}

Bucket Good() {
  return {.seq = LoadSeq(0),
          .entries = {Whole("a", {3}, 0), Whole("b", {2, 2}, 8, DType::kFloat32), Whole("none", {0, 4096}, 24)},
          .used = 24,
          .is_last = false};
}

testing::AssertionResult IsRefused(const Bucket& bucket) {
  const Status status = CheckBucket(bucket, kCapacity);
  if (status.ok()) {
    return testing::AssertionFailure() << "accepted";
  }
  if (status.code() != StatusCode::kInvalidArgument) {
    return testing::AssertionFailure() << status.ToString();
  }
  return testing::AssertionSuccess();
}

// RC-BKT-14: everything received is hostile until checked.
TEST(CheckBucketTest, AcceptsWhatThePackerMakes) {
  EXPECT_TRUE(CheckBucket(Good(), kCapacity).ok());
  EXPECT_TRUE(CheckBucket(Good(), 24).ok());
}

TEST(CheckBucketTest, RefusesTooManyEntries) {
  Bucket bucket;
  bucket.entries.assign(kMaxEntries + 1, Whole("n", {0}, 0));
  EXPECT_TRUE(IsRefused(bucket));
  bucket.entries.pop_back();
  EXPECT_FALSE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesMissingAndOverlongNames) {
  Bucket bucket = Good();
  bucket.entries[1].spec.name.clear();
  EXPECT_TRUE(IsRefused(bucket));
  bucket.entries[1].spec.name = std::string(weights::kMaxNameLength, 'n');
  EXPECT_FALSE(IsRefused(bucket));
  bucket.entries[1].spec.name += 'n';
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesTooManyDimensions) {
  Bucket bucket = Good();
  bucket.entries[1].spec.shape = {4, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_FALSE(IsRefused(bucket));
  bucket.entries[1].spec.shape.push_back(1);
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesNegativeDimensions) {
  Bucket bucket = Good();
  bucket.entries[1].spec.shape = {-2, -2};
  EXPECT_TRUE(IsRefused(bucket));
  // Taken for an unsigned number it would be refused too, but as too large: the message would mislead.
  EXPECT_NE(CheckBucket(bucket, kCapacity).message().find("dimension -2"), std::string::npos);
  bucket.entries[2].spec.shape = {0, -1};
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesProductsThatOverflow) {
  Bucket bucket = Good();
  bucket.entries[0].spec.shape = {kHuge, 4};  // wraps to 0 bytes
  bucket.entries[0].chunk_size = 0;
  EXPECT_TRUE(IsRefused(bucket));
  bucket.entries[0] = Whole("a", {3}, 0);
  bucket.entries[2].spec.shape = {0, kHuge, kHuge};  // no bytes, but its strides do not fit
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesChunksOutsideTheirTensor) {
  Bucket bucket = Good();
  bucket.entries[0].chunk_offset = 2;
  EXPECT_TRUE(IsRefused(bucket));
  bucket.entries[0].chunk_offset = std::numeric_limits<ByteCount>::max();
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesEmptyChunksOfTensorsThatHaveBytes) {
  Bucket bucket = Good();
  bucket.entries[0].chunk_size = 0;
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesEntriesPastTheUsedBytes) {
  Bucket bucket = Good();
  bucket.used = 23;
  EXPECT_TRUE(IsRefused(bucket));
  bucket = Good();
  bucket.entries.resize(1);
  bucket.entries[0].offset = std::numeric_limits<ByteCount>::max() - 3;  // the sum wraps
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesMoreUsedBytesThanTheBufferHas) {
  Bucket bucket = Good();
  bucket.used = kCapacity + 1;
  EXPECT_TRUE(IsRefused(bucket));
  bucket.used = kCapacity;
  EXPECT_FALSE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesAWholeTensorOffItsAlignment) {
  Bucket bucket = Good();
  bucket.used = kCapacity;
  bucket.entries[1].offset = 10;
  bucket.entries[2].offset = 28;
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, RefusesOverlap) {
  Bucket bucket = Good();
  bucket.entries[1].offset = 4;
  EXPECT_TRUE(IsRefused(bucket));
  bucket.entries[1].offset = 0;
  EXPECT_TRUE(IsRefused(bucket));
}

TEST(CheckBucketTest, AMessageIsOneShortLineWhateverTheNameHolds) {
  Bucket bucket = Good();
  bucket.entries[1].spec.name = std::string(1 << 20, 'n');
  EXPECT_LT(CheckBucket(bucket, kCapacity).ToString().size(), 400u);
}

TEST(BucketDigestTest, CoversNameDTypeShapeOffsetAndChunkDigest) {  // RX-SUM, L1
  test::FakeHasher hasher;
  const Bucket good = Good();
  std::vector<Digest> digests(3);
  digests[0].low = 1;
  digests[1].low = 2;
  const Digest expected = BucketDigest(good, digests, hasher);
  EXPECT_EQ(BucketDigest(good, digests, hasher), expected);

  const auto differs = [&](auto change) {
    Bucket bucket = good;
    change(bucket.entries[0]);
    return BucketDigest(bucket, digests, hasher) != expected;
  };
  EXPECT_TRUE(differs([](Entry& entry) { entry.spec.name = "A"; }));
  EXPECT_TRUE(differs([](Entry& entry) { entry.spec.dtype = DType::kFloat16; }));
  EXPECT_TRUE(differs([](Entry& entry) { entry.spec.shape = {3, 1}; }));
  EXPECT_TRUE(differs([](Entry& entry) { entry.offset = 2; }));
  std::swap(digests[0], digests[1]);
  EXPECT_NE(BucketDigest(good, digests, hasher), expected);
}

}  // namespace
}  // namespace refit::stream
