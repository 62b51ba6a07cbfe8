// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/name_aligner.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/poison_pool.h"

namespace refit::stream {
namespace {

using weights::DType;

Batch BatchOf(const std::vector<std::string>& names) {
  Batch batch;
  for (const std::string& name : names) {
    batch.push_back({.spec = {name, DType::kBfloat16, {4}}, .location = 0});
  }
  return batch;
}

// The names of every group, "a b | c", or the error.
std::string Align(std::vector<std::deque<Batch>> streams) {
  std::size_t steps_left = 2;  // RC-ALN-04: entries + ranks + 1, and one to see that it ends
  for (const std::deque<Batch>& stream : streams) {
    steps_left += stream.size() + 1;
    for (const Batch& batch : stream) {
      steps_left += batch.size();
    }
  }
  NameAligner aligner(streams.size());
  std::string out;
  while (steps_left-- > 0) {
    for (const std::size_t r : aligner.Wanted()) {
      std::optional<Batch> batch;
      if (!streams[r].empty()) {
        batch = std::move(streams[r].front());
        streams[r].pop_front();
      }
      if (const Status status = aligner.Accept(r, std::move(batch)); !status.ok()) {
        return status.message();
      }
    }
    const auto group = aligner.Next();
    if (!group.ok()) {
      return group.status().message();
    }
    if (!group->has_value()) {
      return out;
    }
    out += out.empty() ? "" : " |";
    for (const BatchTensor& tensor : (**group)[0]) {
      out += " " + tensor.spec.name;
    }
  }
  return "never ends";
}

TEST(NameAlignerTest, GroupsEndWhereAnyRanksBatchEnds) {  // §24
  EXPECT_EQ(Align({{BatchOf({"a", "b"}), BatchOf({"c"})}, {BatchOf({"a"}), BatchOf({"b", "c"})}}), " a | b | c");
  EXPECT_EQ(Align({{BatchOf({"a", "b"}), BatchOf({"c"}), BatchOf({"d", "e"})},
                   {BatchOf({"a"}), BatchOf({"b", "c"}), BatchOf({"d"}), BatchOf({"e"})}}),
            " a | b | c | d | e");
}

TEST(NameAlignerTest, EqualLayoutsCostOneGroupPerBatch) {  // RC-ALN-07
  const std::deque<Batch> stream = {BatchOf({"a", "b"}), BatchOf({"c", "d", "e"})};
  EXPECT_EQ(Align({stream, stream, stream}), " a b | c d e");
}

TEST(NameAlignerTest, NoStreamsIsAnError) { EXPECT_NE(Align({}).find("NO_RECEIVERS"), std::string::npos); }

TEST(NameAlignerTest, AllStreamsEmptyIsTheEnd) { EXPECT_EQ(Align({{}, {}}), ""); }

TEST(NameAlignerTest, StreamsOfDifferentLengthAreAnErrorThatNamesTheRankAndTheTensor) {  // RC-ALN-04, -05
  for (std::size_t shorter = 0; shorter < 3; ++shorter) {
    std::vector<std::deque<Batch>> streams(3, {BatchOf({"a"}), BatchOf({"b"})});
    streams[shorter].pop_back();
    EXPECT_EQ(Align(streams), "STREAMS_ENDED_DIFFERENTLY: rank " + std::to_string(shorter) +
                                  " ended while others still hold b bfloat16");
  }
  EXPECT_EQ(Align({{BatchOf({"a"})}, {}}),
            "STREAMS_ENDED_DIFFERENTLY: rank 1 ended while others still hold a bfloat16");
}

TEST(NameAlignerTest, AnEmptyBatchIsAnErrorThatNamesTheRank) {  // RC-ALN-05
  for (std::size_t rank = 0; rank < 3; ++rank) {
    NameAligner aligner(3);
    const Status status = aligner.Accept(rank, Batch());
    EXPECT_NE(status.message().find("EMPTY_BATCH: rank " + std::to_string(rank)), std::string::npos);
  }
}

TEST(NameAlignerTest, AnotherNameIsAnErrorThatNamesRanksNamesAndDTypes) {  // RC-ALN-05
  for (std::size_t rank = 1; rank < 3; ++rank) {
    std::vector<std::deque<Batch>> streams(3, {BatchOf({"a", "b"})});
    streams[rank] = {BatchOf({"a", "c"})};
    EXPECT_EQ(Align(streams),
              "ORDER_DIVERGED: rank 0 has b bfloat16, rank " + std::to_string(rank) + " has c bfloat16");
  }
  EXPECT_EQ(Align({{BatchOf({"z"})}, {BatchOf({"a"})}}),
            "ORDER_DIVERGED: rank 0 has z bfloat16, rank 1 has a bfloat16");
}

TEST(NameAlignerTest, AnotherDTypeIsAnErrorThatNamesRanksNamesAndDTypes) {  // RC-ALN-05
  for (std::size_t rank = 1; rank < 3; ++rank) {
    std::vector<std::deque<Batch>> streams(3, {BatchOf({"a"})});
    streams[rank].front()[0].spec.dtype = DType::kFloat32;
    EXPECT_EQ(Align(streams), "ORDER_DIVERGED: rank 0 has a bfloat16, rank " + std::to_string(rank) + " has a float32");
  }
}

TEST(NameAlignerTest, ShapesMayDifferBetweenRanks) {  // RC-ALN-01
  std::vector<std::deque<Batch>> streams(2, {BatchOf({"a"})});
  streams[1].front()[0].spec.shape = {7, 3};
  EXPECT_EQ(Align(streams), " a");
}

TEST(NameAlignerTest, OnlyDrainedStreamsAreWanted) {  // RC-ALN-02
  NameAligner aligner(2);
  EXPECT_EQ(aligner.Wanted(), (std::vector<std::size_t>{0, 1}));
  ASSERT_TRUE(aligner.Accept(0, BatchOf({"a", "b"})).ok());
  ASSERT_TRUE(aligner.Accept(1, BatchOf({"a"})).ok());
  ASSERT_TRUE(aligner.Next().ok());
  EXPECT_EQ(aligner.Wanted(), (std::vector<std::size_t>{1}));
  ASSERT_TRUE(aligner.Accept(1, std::nullopt).ok());
  EXPECT_EQ(aligner.Wanted(), (std::vector<std::size_t>{}));
}

TEST(PoisonPoolTest, TheNextPullOverwritesTheBatchBeforeIt) {  // RC-RX-03: the double itself
  const weights::TensorSpec spec = {"a", DType::kUint8, {3}};
  test::PoisonPool pool({{{spec, "one"}}, {{spec, "two"}}, {{spec, "six"}}});
  const std::string poison(3, test::PoisonPool::kPoison);
  const Batch first = *pool.Pull();
  EXPECT_EQ(pool.Read(first[0]), "one");
  const Batch second = *pool.Pull();
  EXPECT_EQ(pool.Read(first[0]), poison);
  EXPECT_EQ(pool.Read(second[0]), "two");
  const Batch third = *pool.Pull();
  EXPECT_EQ(pool.Read(second[0]), poison);
  EXPECT_FALSE(pool.Pull().has_value());
  EXPECT_EQ(pool.Read(third[0]), poison);
}

}  // namespace
}  // namespace refit::stream
