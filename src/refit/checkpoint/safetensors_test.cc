// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "refit/checkpoint/file.h"
#include "refit/checkpoint/safetensors_writer.h"
#include "tests/support/temp_folder.h"

namespace refit::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string MakeFile(std::string_view header, std::size_t data_size) {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file.append(header).append(data_size, '\1');
  return file;
}

// Why a file with this header and that much data is refused.
std::string Refusal(std::string_view header, std::size_t data_size) {
  const auto entries = ParseSafetensors(AsBytes(MakeFile(header, data_size)));
  return entries.ok() ? "accepted" : entries.status().message();
}

TEST(SafetensorsTest, EntriesComeInTheOrderOfTheirBytes) {
  const std::string file = MakeFile(R"({"__metadata__": {"format": "pt"},
      "b": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
      "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
      "c": {"dtype": "U8", "shape": [0], "data_offsets": [4, 4]}}  )",
                                    16);
  const auto entries = ParseSafetensors(AsBytes(file));
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  ASSERT_THAT(*entries, SizeIs(3));
  EXPECT_EQ((*entries)[0].spec, (weights::TensorSpec{"b", weights::DType::kFloat32, {}}));
  EXPECT_EQ((*entries)[1].spec, (weights::TensorSpec{"c", weights::DType::kUint8, {0}}));
  EXPECT_EQ((*entries)[2].spec, (weights::TensorSpec{"a", weights::DType::kBfloat16, {2, 3}}));
  EXPECT_EQ((*entries)[2].begin, file.size() - 12);
  EXPECT_EQ((*entries)[2].end, file.size());
}

TEST(SafetensorsTest, AHeaderWithoutTensorsIsNoError) {
  const auto entries = ParseSafetensors(AsBytes(MakeFile(R"({"__metadata__": {}})", 0)));
  ASSERT_TRUE(entries.ok());
  EXPECT_THAT(*entries, SizeIs(0));
}

TEST(SafetensorsTest, ATruncatedFileIsRefusedWhereverItEnds) {
  const std::string file = MakeFile(R"({"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}})", 12);
  ASSERT_TRUE(ParseSafetensors(AsBytes(file)).ok());
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(ParseSafetensors(AsBytes(file).first(size)).ok()) << size;
  }
}

TEST(SafetensorsTest, AHeaderLengthThatLiesIsRefused) {
  std::string file = MakeFile("{}", 8);
  for (const std::uint64_t length : {std::uint64_t{11}, std::uint64_t{1} << 62, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    std::memcpy(file.data(), &length, sizeof(length));
    EXPECT_FALSE(ParseSafetensors(AsBytes(file)).ok()) << length;
  }
}

TEST(SafetensorsTest, AHeaderThatLiesIsRefusedByName) {  // S83
  const auto tensor = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    std::string text = R"({"w": {"dtype": ")";
    return text.append(dtype).append(R"(", "shape": )").append(shape).append(R"(, "data_offsets": )").append(offsets) +
           "}}";
  };
  EXPECT_EQ(Refusal(tensor("BF16", "[2]", "[0, 4]"), 4), "accepted");
  EXPECT_THAT(Refusal(tensor("Q4", "[2]", "[0, 4]"), 4), HasSubstr("tensor w has the unknown dtype \"Q4\""));
  EXPECT_THAT(Refusal(tensor("BF16", "[-2]", "[0, 4]"), 4), HasSubstr("[-2]"));
  EXPECT_THAT(Refusal(tensor("BF16", "[2.0]", "[0, 4]"), 4), HasSubstr("tensor w has the shape"));
  EXPECT_THAT(Refusal(tensor("BF16", "[9223372036854775808]", "[0, 4]"), 4), HasSubstr("tensor w has the shape"));
  EXPECT_FALSE(Refusal(tensor("BF16", "[9223372036854775807, 4]", "[0, 4]"), 4) == "accepted");
  EXPECT_FALSE(Refusal(tensor("BF16", "[1,1,1,1,1,1,1,1,2]", "[0, 4]"), 4) == "accepted");
  EXPECT_THAT(Refusal(tensor("BF16", "[3]", "[0, 4]"), 4), HasSubstr("6 bytes by dtype and shape"));
  EXPECT_THAT(Refusal(tensor("BF16", "[2]", "[4, 0]"), 4), HasSubstr("data_offsets"));
  EXPECT_THAT(Refusal(tensor("BF16", "[2]", "[0, 4, 8]"), 4), HasSubstr("lacks"));
  EXPECT_THAT(Refusal(tensor("BF16", "[2]", "[1e0, 5]"), 5), HasSubstr("data_offsets"));
  EXPECT_THAT(Refusal(tensor("BF16", "[2]", "[0, 4]"), 3), HasSubstr("truncated"));
  EXPECT_THAT(Refusal(tensor("BF16", "[2]", "[0, 4]"), 5), HasSubstr("1 bytes after the last tensor"));
  EXPECT_THAT(Refusal(tensor("BF16", "[2]", "[2, 6]"), 6), HasSubstr("hole"));
  EXPECT_THAT(Refusal(R"({"w": 3})", 0), HasSubstr("tensor w lacks"));
  EXPECT_THAT(Refusal("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal("{", 0), HasSubstr("bad JSON at byte"));
  EXPECT_THAT(Refusal("{} x", 0), HasSubstr("bad JSON at byte"));
}

TEST(SafetensorsTest, OverlappingTensorsAreRefused) {  // S83
  EXPECT_THAT(Refusal(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
                          "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}})",
                      6),
              HasSubstr("tensor b begins at byte"));
}

TEST(SafetensorsTest, ATensorNamedTwiceIsRefused) {
  EXPECT_THAT(Refusal(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                          "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
                      2),
              HasSubstr("key \"a\" occurs twice"));
}

TEST(SafetensorsTest, DeepNestingIsRefusedAndNotFollowed) {
  EXPECT_THAT(Refusal(std::string(1'000'000, '['), 0), HasSubstr("nested more than 64 deep"));
}

TEST(SafetensorsTest, WhatIsWrittenIsReadBack) {
  const test::TempFolder folder;
  const std::vector<weights::TensorSpec> specs = {{"z \"quoted\" ü", weights::DType::kBfloat16, {2, 2}},
                                                  {"a", weights::DType::kFloat32, {}},
                                                  {"empty", weights::DType::kInt64, {0, 5}}};
  const std::string data = "01234567abcd";
  const std::string path = folder / "model.safetensors";
  ASSERT_TRUE(
      WriteSafetensors(path, {{specs[0], AsBytes(data).first(8)}, {specs[1], AsBytes(data).last(4)}, {specs[2], {}}})
          .ok());
  const std::string file = folder.Read("model.safetensors");
  const auto entries = ParseSafetensors(AsBytes(file));
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  ASSERT_THAT(*entries, SizeIs(3));
  EXPECT_EQ((*entries)[0].spec, specs[0]);
  EXPECT_EQ((*entries)[0].begin % 8, 0U);
  EXPECT_EQ(file.substr((*entries)[0].begin, 12), data);
}

TEST(SafetensorsTest, AWriterDroppedHalfWayLeavesNothing) {
  const test::TempFolder folder;
  {
    auto writer = SafetensorsWriter::Create(folder / "model.safetensors", {{"a", weights::DType::kUint8, {4}}});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append(AsBytes("abc")).ok());
    EXPECT_THAT((*writer)->Finish().message(), HasSubstr("1 bytes fewer"));
    EXPECT_THAT((*writer)->Append(AsBytes("de")).message(), HasSubstr("1 bytes more"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsTest, BytesThatDisagreeWithTheSpecAreNotWritten) {
  const test::TempFolder folder;
  const weights::TensorSpec spec = {"a", weights::DType::kUint8, {4}};
  EXPECT_THAT(WriteSafetensors(folder / "x", {{spec, AsBytes("abc")}}).message(), HasSubstr("needs 4 bytes, not 3"));
  EXPECT_FALSE(WriteSafetensors(folder / "x", {{spec, AsBytes("abcd")}, {spec, AsBytes("abcd")}}).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// RC-PAY-10: mapped sources are read through a guard.
TEST(SafetensorsTest, AFileTruncatedWhileMappedIsDataLoss) {
  const test::TempFolder folder;
  folder.Write("model.safetensors", MakeFile("{}" + std::string(10'000, ' '), 0));
  const auto file = MappedFile::Open(folder / "model.safetensors");
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(folder / "model.safetensors", 0);
  const Status status = ParseSafetensors((*file)->bytes()).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
}

}  // namespace
}  // namespace refit::checkpoint
