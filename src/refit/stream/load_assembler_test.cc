// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/bucket_merger.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace refit::stream {
namespace {

using weights::DType;

constexpr ByteCount kCapacity = 64;

Entry Whole(std::string name, weights::Shape shape, ByteCount offset, DType dtype = DType::kBfloat16) {
  Entry entry{.spec = {std::move(name), dtype, std::move(shape)}, .chunk_offset = 0, .chunk_size = 0, .offset = offset};
  entry.chunk_size = SizeOf(entry.spec).value();
  return entry;
}

Entry Chunk(std::string name, std::int64_t count, ByteCount chunk_offset, ByteCount chunk_size) {
  Entry entry = Whole(std::move(name), {count}, 0, DType::kUint8);
  entry.chunk_offset = chunk_offset;
  entry.chunk_size = chunk_size;
  return entry;
}

Bucket BucketOf(std::uint64_t seq, std::vector<Entry> entries, bool is_last = false) {
  ByteCount used = 0;
  for (const Entry& entry : entries) {
    used = entry.offset + entry.chunk_size;
  }
  return {.seq = LoadSeq(seq), .entries = std::move(entries), .used = used, .is_last = is_last};
}

Bucket Mixed() {
  return BucketOf(0, {Whole("a", {3}, 0), Whole("b", {2, 2}, 8, DType::kFloat32), Whole("none", {0, 4096}, 24)});
}

// The status of the first bucket that is refused; OK when all are accepted.
Status Feed(const std::vector<Bucket>& buckets) {
  BucketMerger merger(kCapacity);
  for (const Bucket& bucket : buckets) {
    REFIT_RETURN_IF_ERROR(merger.Accept(bucket).status());
  }
  return OkStatus();
}

TEST(BucketMergerTest, WholeTensorsStayInTheLandingBuffer) {
  BucketMerger merger(kCapacity);
  const MergeStep step = merger.Accept(Mixed()).value();
  EXPECT_TRUE(step.copies.empty());
  EXPECT_FALSE(step.assembly_size.has_value());
  ASSERT_EQ(step.tensors.size(), 3u);
  EXPECT_EQ(step.tensors[1].offset, 8u);
  EXPECT_EQ(step.tensors[1].size, 16u);
  EXPECT_FALSE(step.tensors[1].reassembled);
  EXPECT_EQ(step.tensors[2].size, 0u);  // RC-BKT-12
}

TEST(BucketMergerTest, ASpanningTensorIsDeliveredWithItsFinalChunkInStreamPosition) {  // RC-BKT-03
  BucketMerger merger(kCapacity);
  const MergeStep first = merger.Accept(BucketOf(0, {Chunk("big", 133, 0, 64)})).value();
  EXPECT_EQ(first.assembly_size, ByteCount{133});
  EXPECT_TRUE(first.tensors.empty());
  const MergeStep second = merger.Accept(BucketOf(1, {Chunk("big", 133, 64, 64)})).value();
  EXPECT_FALSE(second.assembly_size.has_value());
  EXPECT_EQ(second.copies, (CopyPlan{{.source = 0, .source_offset = 0, .target_offset = 64, .size = 64, .entry = 0}}));
  Entry next = Whole("next", {4}, 5, DType::kUint8);
  const MergeStep third = merger.Accept(BucketOf(2, {Chunk("big", 133, 128, 5), next}, true)).value();
  ASSERT_EQ(third.tensors.size(), 2u);
  EXPECT_TRUE(third.tensors[0].reassembled);
  EXPECT_EQ(third.tensors[0].spec.name, "big");
  EXPECT_EQ(third.tensors[1].spec.name, "next");
  EXPECT_TRUE(third.is_last);
}

TEST(BucketMergerTest, EverySpanningTensorAsksForMemoryOfItsOwn) {  // RC-RX-04
  BucketMerger merger(kCapacity);
  std::size_t asked = 0;
  std::size_t delivered = 0;
  for (std::uint64_t seq = 0; seq < 6; ++seq) {
    const std::string name(1, static_cast<char>('a' + seq / 2));
    const ByteCount at = seq % 2 == 0 ? 0 : 64;
    const MergeStep step = merger.Accept(BucketOf(seq, {Chunk(name, 100, at, at == 0 ? 64 : 36)}, seq == 5)).value();
    asked += step.assembly_size.has_value() ? 1u : 0u;
    for (const MergedTensor& tensor : step.tensors) {
      delivered += tensor.reassembled ? 1u : 0u;
    }
  }
  EXPECT_EQ(delivered, 3u);
  EXPECT_EQ(asked, delivered);
}

TEST(BucketMergerTest, AnEmptyLastBucketEndsTheStream) {  // RC-BKT-11
  BucketMerger merger(kCapacity);
  const MergeStep step = merger.Accept(BucketOf(0, {}, true)).value();
  EXPECT_TRUE(step.is_last);
  EXPECT_TRUE(step.tensors.empty());
  EXPECT_FALSE(merger.Accept(BucketOf(1, {})).ok());
}

// RC-BKT-04: reassembly verifies.
TEST(BucketMergerTest, AcceptsChunksInOrder) {
  EXPECT_TRUE(Feed({BucketOf(0, {Chunk("big", 150, 0, 64)}), BucketOf(1, {Chunk("big", 150, 64, 64)}),
                    BucketOf(2, {Chunk("big", 150, 128, 22)}, true)})
                  .ok());
}
TEST(BucketMergerTest, RefusesADroppedChunk) {
  EXPECT_FALSE(Feed({BucketOf(0, {Chunk("big", 150, 0, 64)}), BucketOf(1, {Chunk("big", 150, 128, 22)})}).ok());
}
TEST(BucketMergerTest, RefusesARepeatedChunk) {
  EXPECT_FALSE(Feed({BucketOf(0, {Chunk("big", 150, 0, 64)}), BucketOf(1, {Chunk("big", 150, 0, 64)})}).ok());
}
TEST(BucketMergerTest, RefusesSwappedChunks) {  // every byte arrives: counting them is not enough
  EXPECT_FALSE(Feed({BucketOf(0, {Chunk("big", 128, 64, 64)}), BucketOf(1, {Chunk("big", 128, 0, 64)}, true)}).ok());
}
TEST(BucketMergerTest, RefusesAnotherTensorInBetween) {
  EXPECT_FALSE(Feed({BucketOf(0, {Chunk("big", 128, 0, 64)}), BucketOf(1, {Whole("x", {4}, 0)})}).ok());
  EXPECT_FALSE(Feed({BucketOf(0, {Chunk("big", 128, 0, 64)}), BucketOf(1, {Chunk("pig", 128, 64, 64)})}).ok());
}
TEST(BucketMergerTest, RefusesAChunkOfAnotherShapeOrDType) {
  Entry other = Chunk("big", 128, 64, 64);
  other.spec.shape = {2, 64};
  EXPECT_FALSE(Feed({BucketOf(0, {Chunk("big", 128, 0, 64)}), BucketOf(1, {other})}).ok());
  other = Chunk("big", 128, 64, 64);
  other.spec.dtype = DType::kInt8;
  EXPECT_FALSE(Feed({BucketOf(0, {Chunk("big", 128, 0, 64)}), BucketOf(1, {other})}).ok());
}
TEST(BucketMergerTest, RefusesAnEndInsideATensor) {
  EXPECT_FALSE(Feed({BucketOf(0, {Chunk("big", 128, 0, 64)}, true)}).ok());
}
TEST(BucketMergerTest, RefusesAChunkBehindAnotherEntry) {
  Entry chunk = Chunk("big", 128, 0, 60);
  chunk.offset = 4;
  EXPECT_FALSE(Feed({BucketOf(0, {Whole("x", {2}, 0), chunk})}).ok());
}
TEST(BucketMergerTest, RefusesAWrongSequenceNumberAndStaysRefusing) {
  BucketMerger merger(kCapacity);
  EXPECT_FALSE(merger.Accept(BucketOf(1, {})).ok());
  EXPECT_FALSE(merger.Accept(BucketOf(0, {})).ok());
}
TEST(BucketMergerTest, RefusesWhatCheckBucketRefuses) {
  BucketMerger merger(8);
  EXPECT_FALSE(merger.Accept(Mixed()).ok());
}

}  // namespace
}  // namespace refit::stream
