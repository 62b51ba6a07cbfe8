// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/random_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "refit/checkpoint/checkpoint.h"
#include "refit/device/hash.h"
#include "tests/support/temp_folder.h"

namespace refit::checkpoint {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Checkpoint> Open(const std::string& folder) {
  auto checkpoint = Checkpoint::Open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  return checkpoint.ok() ? *std::move(checkpoint) : nullptr;
}

std::vector<double> Values(Bytes bytes) {
  std::vector<double> values;
  for (std::size_t at = 0; at + 2 <= bytes.size(); at += 2) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + at, sizeof(half));
    values.push_back(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16)));
  }
  return values;
}

std::pair<double, double> MeanAndDeviation(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return {mean, std::sqrt(squares / static_cast<double>(values.size()) - mean * mean)};
}

TEST(RandomCheckpointTest, HasTheTensorsThatTheModelExpectsInThatOrder) {
  const test::TempFolder folder;
  for (const char* shape : {"tiny", "tiny-llama", "tiny-moe"}) {
    const auto config = RandomShape(shape);
    ASSERT_TRUE(config.ok());
    ASSERT_TRUE(WriteRandomCheckpoint(*config, 1, folder / shape).ok());
    const auto checkpoint = Open(folder / shape);
    ASSERT_NE(checkpoint, nullptr);
    const auto expected = weights::ExpectedTensors(*config);
    ASSERT_TRUE(expected.ok());
    EXPECT_TRUE(std::ranges::equal(checkpoint->manifest().tensors(), expected->tensors())) << shape;
    EXPECT_TRUE(ReadModelConfig(folder / shape).ok());
  }
}

TEST(RandomCheckpointTest, TheBenchShapesHaveTheSizesTheyAreQuotedWith) {
  const auto qwen = weights::ExpectedTensors(*RandomShape("qwen3-0.6b"));
  ASSERT_TRUE(qwen.ok());
  EXPECT_EQ(qwen->tensor_count(), 310U);
  EXPECT_EQ(qwen->total_size(), 1'192'099'840U);
  const auto untied = weights::ExpectedTensors(*RandomShape("qwen3-0.6b-untied"));
  ASSERT_TRUE(untied.ok());
  EXPECT_EQ(untied->tensor_count(), 311U);
  EXPECT_EQ(untied->total_size(), 1'503'264'768U);
  const auto moe = weights::ExpectedTensors(*RandomShape("moe-18k"));
  ASSERT_TRUE(moe.ok());
  ByteCount expert_bytes = 0;
  std::size_t expert_count = 0;
  for (std::size_t i = 0; i < moe->tensor_count(); ++i) {
    if (moe->tensors()[i].name.find(".experts.") != std::string::npos) {
      expert_bytes += moe->size(i);
      ++expert_count;
    }
  }
  EXPECT_EQ(expert_count, 48U * 128 * 3);
  EXPECT_EQ(expert_bytes, 1'207'959'552U);
  EXPECT_TRUE(weights::CheckTpSize(*RandomShape("tiny-llama"), 3).ok());
}

// The digest is of one machine: another that gives other bytes turns this red.
TEST(RandomCheckpointTest, TheSameSeedGivesTheSameBytesEverywhere) {
  const test::TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny"), 1, folder / "a").ok());
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny"), 1, folder / "b").ok());
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny"), 2, folder / "c").ok());
  EXPECT_EQ(folder.Read("a/model.safetensors"), folder.Read("b/model.safetensors"));
  EXPECT_NE(folder.Read("a/model.safetensors"), folder.Read("c/model.safetensors"));
  EXPECT_EQ(device::Sha256Hex(AsBytes(folder.Read("a/model.safetensors"))),
            "a82b75494e13a8f479e84c5e0da458c9db133811d112ba201cdaa94737fdaa0b");
}

TEST(RandomCheckpointTest, WeightsAreNormalLikeAndNormsAreAroundOne) {
  const test::TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny"), 1, folder / "a").ok());
  const auto checkpoint = Open(folder / "a");
  ASSERT_NE(checkpoint, nullptr);
  const auto values = [&](std::string_view name) {
    return Values(checkpoint->bytes(*checkpoint->manifest().Find(name)));
  };
  const auto [mean, deviation] = MeanAndDeviation(values("model.embed_tokens.weight"));
  EXPECT_NEAR(mean, 0, 0.001);
  EXPECT_NEAR(deviation, 0.02, 0.001);
  const auto [norm_mean, norm_deviation] = MeanAndDeviation(values("model.norm.weight"));
  EXPECT_NEAR(norm_mean, 1, 0.05);
  EXPECT_NEAR(norm_deviation, 0.1, 0.05);
}

TEST(RandomCheckpointTest, NoTwoRowsOfTheModelAreEqual) {
  const test::TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny-moe"), 1, folder / "a").ok());
  const auto checkpoint = Open(folder / "a");
  ASSERT_NE(checkpoint, nullptr);
  std::set<std::string> rows;
  std::size_t row_count = 0;
  for (std::size_t i = 0; i < checkpoint->manifest().tensor_count(); ++i) {
    const weights::Shape& shape = checkpoint->manifest().tensors()[i].shape;
    const auto count = shape.size() == 1 ? std::size_t{1} : static_cast<std::size_t>(shape[0]);
    const Bytes bytes = checkpoint->bytes(i);
    for (std::size_t row = 0; row < count; ++row) {
      const Bytes one = bytes.subspan(row * (bytes.size() / count), bytes.size() / count);
      rows.emplace(reinterpret_cast<const char*>(one.data()), one.size());
      ++row_count;
    }
  }
  EXPECT_EQ(rows.size(), row_count);
}

TEST(RandomCheckpointTest, IsNotWrittenAgainWhereItIsAlready) {
  const test::TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny-llama"), 1, folder / "deep/a/").ok());
  const auto before = std::filesystem::last_write_time(folder / "deep/a");
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny-llama"), 1, folder / "deep/a").ok());
  EXPECT_EQ(std::filesystem::last_write_time(folder / "deep/a"), before);
}

TEST(RandomCheckpointTest, ReplacesAnotherRandomOneButNothingElse) {
  const test::TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny-llama"), 1, folder / "a").ok());
  const std::string first = folder.Read("a/model.safetensors");
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny-llama"), 2, folder / "a").ok());
  EXPECT_NE(folder.Read("a/model.safetensors"), first);
  std::filesystem::create_directory(folder / "home");
  folder.Write("home/diary", "dear diary");
  const Status status = WriteRandomCheckpoint(*RandomShape("tiny-llama"), 1, folder / "home");
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr(folder / "home"));
  EXPECT_EQ(folder.Read("home/diary"), "dear diary");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().string().find("partial"), std::string::npos) << entry.path();
  }
}

TEST(RandomCheckpointTest, AnUnknownShapeIsRefusedWithTheKnownOnes) {
  const Status status = RandomShape("huge").status();
  EXPECT_THAT(status.message(), HasSubstr("huge"));
  EXPECT_THAT(status.remedy(), HasSubstr("moe-18k"));
}

TEST(AlteredCheckpointTest, HasTheSameManifestAndItsEmbeddingRolledByOneRow) {
  const test::TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny-llama"), 1, folder / "a").ok());
  folder.Write("a/tokenizer.json", "{}");
  ASSERT_TRUE(WriteAlteredCheckpoint(folder / "a", folder / "b").ok());
  const auto source = Open(folder / "a");
  const auto altered = Open(folder / "b");
  ASSERT_TRUE(source != nullptr && altered != nullptr);
  ASSERT_TRUE(std::ranges::equal(source->manifest().tensors(), altered->manifest().tensors()));
  for (std::size_t i = 0; i < source->manifest().tensor_count(); ++i) {
    const Bytes before = source->bytes(i);
    const Bytes after = altered->bytes(i);
    if (source->manifest().tensors()[i].name == "model.embed_tokens.weight") {
      const std::size_t row = before.size() / 384;
      EXPECT_TRUE(std::ranges::equal(after.first(row), before.last(row)));
      EXPECT_TRUE(std::ranges::equal(after.subspan(row), before.first(before.size() - row)));
    } else {
      EXPECT_TRUE(std::ranges::equal(before, after));
    }
  }
  EXPECT_EQ(folder.Read("b/config.json"), folder.Read("a/config.json"));
  EXPECT_EQ(folder.Read("b/tokenizer.json"), "{}");
}

TEST(AlteredCheckpointTest, IsWholeOrNotThere) {
  const test::TempFolder folder;
  EXPECT_EQ(WriteAlteredCheckpoint(folder / "nothing", folder / "b").code(), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(folder / "b"));
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny-llama"), 1, folder / "a").ok());
  ASSERT_TRUE(WriteAlteredCheckpoint(folder / "a", folder / "b").ok());
  EXPECT_EQ(WriteAlteredCheckpoint(folder / "a", folder / "b").code(), StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace refit::checkpoint
