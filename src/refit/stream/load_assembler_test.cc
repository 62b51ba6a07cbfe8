// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/load_assembler.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace refit::stream {
namespace {

using weights::DType;

constexpr ByteCount kCapacity = 64;    // of a piece
constexpr ByteCount kLoadBytes = 100;  // of a load

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

Bucket PieceOf(std::uint64_t seq, std::vector<Entry> entries, bool is_last = false) {
  ByteCount used = 0;
  for (const Entry& entry : entries) {
    used = entry.offset + entry.chunk_size;
  }
  return {.seq = LoadSeq(seq), .entries = std::move(entries), .used = used, .is_last = is_last};
}

Bucket Mixed(bool is_last = false) {
  return PieceOf(0, {Whole("a", {3}, 0), Whole("b", {2, 2}, 8, DType::kFloat32), Whole("none", {0, 4096}, 24)},
                 is_last);
}

// What became of a stream, in numbers that can be compared.
struct Outcome {
  std::vector<std::pair<std::uint64_t, ByteCount>> opened;   // number, capacity
  std::vector<std::pair<std::uint64_t, ByteCount>> targets;  // of every placement: load, offset in it
  std::vector<ByteCount> used;                               // of every closed load
  std::vector<std::string> tensors;                          // "load name location"
};

Result<Outcome> Feed(const std::vector<Bucket>& pieces, ByteCount load_bytes = kLoadBytes) {
  LoadAssembler assembler(kCapacity, load_bytes);
  Outcome out;
  for (const Bucket& piece : pieces) {
    REFIT_ASSIGN_OR_RETURN(const AssemblyStep step, assembler.Accept(piece));
    for (const OpenedLoad& load : step.opened) {
      out.opened.emplace_back(load.number, load.capacity);
    }
    for (const Placement& placement : step.placements) {
      out.targets.emplace_back(placement.load, placement.target_offset);
    }
    for (const ClosedLoad& load : step.closed) {
      out.used.push_back(load.used);
      for (const BatchTensor& tensor : load.tensors) {
        out.tensors.push_back(std::to_string(load.number) + " " + tensor.spec.name + " " +
                              std::to_string(tensor.location));
      }
    }
  }
  return out;
}

using Pairs = std::vector<std::pair<std::uint64_t, ByteCount>>;
using Names = std::vector<std::string>;

TEST(LoadAssemblerTest, WholeTensorsFollowOneAnotherAtTheirOwnAlignment) {  // RC-BKT-02, -05
  LoadAssembler assembler(kCapacity, kLoadBytes);
  const AssemblyStep step = assembler.Accept(Mixed()).value();
  ASSERT_EQ(step.placements.size(), 3u);
  EXPECT_EQ(step.placements[1].source_offset, 8u);
  EXPECT_EQ(step.placements[1].size, 16u);
  EXPECT_EQ(step.placements[2].size, 0u);
  EXPECT_TRUE(step.closed.empty()) << "more may follow";
  const AssemblyStep last = assembler.Accept(PieceOf(1, {Whole("c", {1}, 0)}, true)).value();
  EXPECT_TRUE(last.opened.empty());
  ASSERT_EQ(last.closed.size(), 1u);
  EXPECT_EQ(last.closed[0].used, 26u);
  EXPECT_EQ(Feed({Mixed(), PieceOf(1, {Whole("c", {1}, 0)}, true)})->tensors,
            (Names{"0 a 0", "0 b 8", "0 none 24", "0 c 24"}));  // RC-BKT-12: none is there
}

TEST(LoadAssemblerTest, ATensorThatDoesNotFitOpensTheNextLoad) {  // RC-PAY-08
  const auto out = Feed({PieceOf(0, {Chunk("a", 60, 0, 60)}), PieceOf(1, {Chunk("b", 40, 0, 40)}),
                         PieceOf(2, {Chunk("c", 1, 0, 1)}, true)});
  EXPECT_EQ(out->opened, (Pairs{{0, 100}, {1, 100}}));
  EXPECT_EQ(out->used, (std::vector<ByteCount>{100, 1}));  // an exact fit stays in its load
  EXPECT_EQ(out->tensors, (Names{"0 a 0", "0 b 60", "1 c 0"}));
}

TEST(LoadAssemblerTest, AlignmentMayPushATensorIntoTheNextLoad) {
  const auto out =
      Feed({PieceOf(0, {Whole("a", {1}, 0, DType::kUint8), Whole("b", {2}, 4, DType::kFloat32)}, true)}, 9);
  EXPECT_EQ(out->tensors, (Names{"0 a 0", "1 b 0"}));
  EXPECT_EQ(
      Feed({PieceOf(0, {Whole("a", {9}, 0, DType::kUint8), Whole("b", {0}, 12, DType::kFloat32)}, true)}, 9)->tensors,
      (Names{"0 a 0", "1 b 0"}));
}

TEST(LoadAssemblerTest, ASpanningTensorIsFetchedChunkByChunkToItsPlaceAndDeliveredOnce) {  // RC-BKT-03
  const Entry next = Whole("next", {4}, 16, DType::kUint8);
  const auto out = Feed({PieceOf(0, {Whole("before", {10}, 0, DType::kUint8)}), PieceOf(1, {Chunk("big", 80, 0, 64)}),
                         PieceOf(2, {Chunk("big", 80, 64, 16), next}, true)});
  EXPECT_EQ(out->opened, (Pairs{{0, 100}}));
  EXPECT_EQ(out->targets, (Pairs{{0, 0}, {0, 10}, {0, 74}, {0, 90}}));
  EXPECT_EQ(out->tensors, (Names{"0 before 0", "0 big 10", "0 next 90"}));
}

TEST(LoadAssemblerTest, ATensorLargerThanALoadGetsOneOfItsOwnExactlyItsSize) {  // RC-PAY-08
  const Entry next = Whole("next", {4}, 5, DType::kUint8);
  const auto out = Feed({PieceOf(0, {Whole("before", {10}, 0, DType::kUint8)}), PieceOf(1, {Chunk("big", 133, 0, 64)}),
                         PieceOf(2, {Chunk("big", 133, 64, 64)}), PieceOf(3, {Chunk("big", 133, 128, 5), next}, true)});
  EXPECT_EQ(out->opened, (Pairs{{0, 100}, {1, 133}, {2, 100}}));
  EXPECT_EQ(out->targets, (Pairs{{0, 0}, {1, 0}, {1, 64}, {1, 128}, {2, 0}}));
  EXPECT_EQ(out->used, (std::vector<ByteCount>{10, 133, 4}));
}

TEST(LoadAssemblerTest, EveryLargeTensorAsksForMemoryOfItsOwn) {  // RC-RX-04
  std::vector<Bucket> pieces;
  for (std::uint64_t seq = 0; seq < 6; ++seq) {
    const std::string name(1, static_cast<char>('a' + seq / 2));
    pieces.push_back(PieceOf(seq, {Chunk(name, 110, seq % 2 == 0 ? 0 : 64, seq % 2 == 0 ? 64 : 46)}, seq == 5));
  }
  const auto out = Feed(pieces);
  EXPECT_EQ(out->opened, (Pairs{{0, 110}, {1, 110}, {2, 110}}));
  EXPECT_EQ(out->used.size(), out->opened.size());
}

TEST(LoadAssemblerTest, AnEmptyStreamGivesNoLoadAndEnds) {  // RC-BKT-11
  LoadAssembler assembler(kCapacity, kLoadBytes);
  const AssemblyStep step = assembler.Accept(PieceOf(0, {}, true)).value();
  EXPECT_TRUE(step.is_last);
  EXPECT_TRUE(step.opened.empty());
  EXPECT_TRUE(step.closed.empty());
  EXPECT_FALSE(assembler.Accept(PieceOf(1, {})).ok());
}

// RC-BKT-04: joining verifies.
TEST(LoadAssemblerTest, AcceptsChunksInOrder) {
  EXPECT_TRUE(Feed({PieceOf(0, {Chunk("big", 150, 0, 64)}), PieceOf(1, {Chunk("big", 150, 64, 64)}),
                    PieceOf(2, {Chunk("big", 150, 128, 22)}, true)})
                  .ok());
}
TEST(LoadAssemblerTest, RefusesADroppedChunk) {  // S57
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 150, 0, 64)}), PieceOf(1, {Chunk("big", 150, 128, 22)})}).ok());
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 150, 64, 64)})}).ok());
}
TEST(LoadAssemblerTest, RefusesARepeatedChunk) {  // S57
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 150, 0, 64)}), PieceOf(1, {Chunk("big", 150, 0, 64)})}).ok());
}
TEST(LoadAssemblerTest, RefusesSwappedChunks) {  // every byte arrives: counting them is not enough
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 128, 64, 64)}), PieceOf(1, {Chunk("big", 128, 0, 64)}, true)}).ok());
}
TEST(LoadAssemblerTest, RefusesAnotherTensorInBetween) {
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 128, 0, 64)}), PieceOf(1, {Whole("x", {4}, 0)})}).ok());
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 128, 0, 64)}), PieceOf(1, {Whole("none", {0}, 0)})}).ok());
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 128, 0, 64)}), PieceOf(1, {Chunk("pig", 128, 64, 64)})}).ok());
}
TEST(LoadAssemblerTest, RefusesAChunkOfAnotherShapeOrDType) {
  Entry other = Chunk("big", 128, 64, 64);
  other.spec.shape = {2, 64};
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 128, 0, 64)}), PieceOf(1, {other})}).ok());
  other = Chunk("big", 128, 64, 64);
  other.spec.dtype = DType::kInt8;
  EXPECT_FALSE(Feed({PieceOf(0, {Chunk("big", 128, 0, 64)}), PieceOf(1, {other})}).ok());
}
TEST(LoadAssemblerTest, RefusesAnEndInsideATensor) {
  const Status status = Feed({PieceOf(0, {Chunk("big", 128, 0, 64)}, true)}).status();
  EXPECT_EQ(status.message(), "the stream ended at byte 64 of tensor big");
}
TEST(LoadAssemblerTest, RefusesAWrongSequenceNumberAndStaysRefusing) {
  LoadAssembler assembler(kCapacity, kLoadBytes);
  EXPECT_FALSE(assembler.Accept(PieceOf(1, {})).ok());
  EXPECT_FALSE(assembler.Accept(PieceOf(0, {})).ok());
}
TEST(LoadAssemblerTest, RefusesWhatCheckBucketRefuses) {
  LoadAssembler assembler(8, kLoadBytes);
  EXPECT_FALSE(assembler.Accept(Mixed()).ok());
}

}  // namespace
}  // namespace refit::stream
