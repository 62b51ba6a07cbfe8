// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "refit/checkpoint/file.h"
#include "refit/checkpoint/model_config_json.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/checkpoint/safetensors.h"
#include "refit/device/copy.h"
#include "tests/support/temp_folder.h"

namespace refit::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using weights::DType;

void WriteShard(const test::TempFolder& folder, std::string_view file, const std::vector<std::string>& names) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names) {
    tensors.push_back({{name, DType::kUint8, {4}}, AsBytes("abcd")});
  }
  ASSERT_TRUE(WriteSafetensors(folder / file, tensors).ok());
}

// weight_map: the inside of its braces.
void WriteIndex(const test::TempFolder& folder, std::string_view weight_map) {
  folder.Write("model.safetensors.index.json", std::string("{\"weight_map\": {").append(weight_map) + "}}");
}

Status OpenStatus(const test::TempFolder& folder) { return Checkpoint::Open(folder.path()).status(); }

std::vector<std::string> Names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const weights::TensorSpec& spec : checkpoint.manifest().tensors()) {
    names.push_back(spec.name);
  }
  return names;
}

TEST(CheckpointTest, ASingleFileWithoutAConfigComesInFileOrder) {
  const test::TempFolder folder;
  WriteShard(folder, "model.safetensors", {"z", "a"});
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_THAT(Names(**checkpoint), ElementsAre("z", "a"));
  EXPECT_EQ(std::memcmp((*checkpoint)->bytes(1).data(), "abcd", 4), 0);
}

TEST(CheckpointTest, ShardsAreJoinedInTheModelsOrderAndUnknownTensorsComeLast) {
  const test::TempFolder folder;
  const auto config = RandomShape("tiny-llama");
  ASSERT_TRUE(config.ok());
  folder.Write("config.json", FormatModelConfig(*config, 1));
  WriteShard(folder, "model-1.safetensors", {"extra", "model.norm.weight", "model.layers.1.mlp.up_proj.weight"});
  WriteShard(folder, "model-2.safetensors", {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"});
  WriteIndex(folder, R"("extra": "model-1.safetensors", "model.norm.weight": "model-1.safetensors",
      "model.layers.1.mlp.up_proj.weight": "model-1.safetensors", "model.embed_tokens.weight": "model-2.safetensors",
      "model.layers.0.mlp.up_proj.weight": "model-2.safetensors")");
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_THAT(Names(**checkpoint), ElementsAre("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
                                               "model.layers.1.mlp.up_proj.weight", "model.norm.weight", "extra"));
}

TEST(CheckpointTest, AShardMayBeASymbolicLinkAsInACache) {
  const test::TempFolder blobs;
  const test::TempFolder folder;
  WriteShard(blobs, "0123abcd", {"a"});
  std::filesystem::create_symlink(blobs / "0123abcd", folder / "model-1.safetensors");
  WriteIndex(folder, R"("a": "model-1.safetensors")");
  EXPECT_TRUE(OpenStatus(folder).ok());
}

TEST(CheckpointTest, AnIndexThatEscapesItsFolderIsRefused) {  // S83
  const test::TempFolder outside;
  WriteShard(outside, "model.safetensors", {"a"});
  const test::TempFolder folder;
  for (const std::string& path :
       {"../" + std::filesystem::path(outside.path()).filename().string() + "/model.safetensors",
        outside / "model.safetensors", std::string("sub/model.safetensors"), std::string(".."), std::string(""),
        std::string("..\\\\model.safetensors"), std::string("a\\u0000.safetensors"), std::string("/etc/passwd")}) {
    WriteIndex(folder, "\"a\": \"" + path + "\"");
    const Status status = OpenStatus(folder);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << path << ": " << status.ToString();
    EXPECT_THAT(status.ToString(), HasSubstr("weight_map puts tensor \"a\" into"));
    EXPECT_THAT(status.ToString(), HasSubstr(folder / "model.safetensors.index.json"));
  }
}

TEST(CheckpointTest, AMissingShardIsNamed) {
  const test::TempFolder folder;
  WriteIndex(folder, R"("a": "model-7.safetensors")");
  const Status status = OpenStatus(folder);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("names the shard model-7.safetensors, which is missing"));
}

TEST(CheckpointTest, TheIndexAndTheShardsMustAgree) {
  const test::TempFolder folder;
  WriteShard(folder, "model-1.safetensors", {"a", "b"});
  WriteShard(folder, "model-2.safetensors", {"b", "c"});
  WriteIndex(folder, R"("a": "model-1.safetensors")");
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("model-1.safetensors holds tensor b, which"));
  WriteIndex(folder, R"("a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors")");
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("model-2.safetensors holds tensor b, which"));
  WriteIndex(folder, R"("a": "model-1.safetensors", "b": "model-1.safetensors", "d": "model-1.safetensors")");
  EXPECT_THAT(OpenStatus(folder).message(),
              HasSubstr("puts tensor d into model-1.safetensors, which does not hold it"));
}

TEST(CheckpointTest, ABadIndexIsRefusedByWhatIsWrong) {
  const test::TempFolder folder;
  folder.Write("model.safetensors.index.json", "{}");
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("has no weight_map"));
  folder.Write("model.safetensors.index.json", "{\"weight_map\": {}");
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("bad JSON at byte"));
  WriteIndex(folder, R"("a": "m.safetensors", "a": "m.safetensors")");
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("key \"a\" occurs twice"));
  WriteIndex(folder, R"("a": 3)");
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("weight_map puts tensor \"a\" into 3"));
}

// RC-VER-04
TEST(CheckpointTest, ZeroTensorsAreAnError) {
  const test::TempFolder folder;
  WriteShard(folder, "model.safetensors", {});
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("has no tensors"));
  std::filesystem::remove(folder / "model.safetensors");
  WriteIndex(folder, "");
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("names no tensor"));
}

TEST(CheckpointTest, WhatIsNotThereIsNamedWithARemedy) {
  const test::TempFolder folder;
  const Status missing = Checkpoint::Open(folder / "nothing").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(folder / "nothing"));
  EXPECT_FALSE(missing.remedy().empty());
  EXPECT_EQ(OpenStatus(folder).code(), StatusCode::kNotFound);
  folder.Write("file", "");
  EXPECT_THAT(Checkpoint::Open(folder / "file").status().message(), HasSubstr("is not a folder"));
  folder.Write("model.safetensors", "");
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("model.safetensors is empty"));
  EXPECT_EQ(ReadModelConfig(folder.path()).status().code(), StatusCode::kNotFound);
}

TEST(CheckpointTest, AFifoIsRefusedAndNotWaitedFor) {  // S83
  const test::TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("is not a regular file"));
}

TEST(CheckpointTest, ATruncatedShardIsNamed) {
  const test::TempFolder folder;
  WriteShard(folder, "model.safetensors", {"a"});
  std::filesystem::resize_file(folder / "model.safetensors",
                               std::filesystem::file_size(folder / "model.safetensors") - 1);
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr(folder / "model.safetensors"));
  EXPECT_THAT(OpenStatus(folder).message(), HasSubstr("truncated"));
}

// RC-PAY-10
TEST(CheckpointTest, AFileTruncatedAfterOpenIsDataLossForWhoReadsUnderTheGuard) {
  const test::TempFolder folder;
  ASSERT_TRUE(WriteRandomCheckpoint(*RandomShape("tiny-llama"), 1, folder / "model").ok());
  const auto checkpoint = Checkpoint::Open(folder / "model");
  ASSERT_TRUE(checkpoint.ok());
  std::filesystem::resize_file(folder / "model/model.safetensors", 4096);
  const Bytes last = (*checkpoint)->all_bytes().back();
  std::vector<std::byte> copy(last.size());
  const Status status =
      device::GuardMapped("model.safetensors", [&] { std::memcpy(copy.data(), last.data(), copy.size()); });
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
}

// RC-PAY-10: the kernel reads the mapping here, and says so instead of a signal.
TEST(CheckpointTest, AFileTruncatedWhileItIsCopiedIsDataLoss) {
  const test::TempFolder folder;
  folder.Write("source", std::string(100'000, 'x'));
  const auto source = MappedFile::Open(folder / "source");
  ASSERT_TRUE(source.ok());
  std::filesystem::resize_file(folder / "source", 0);
  const auto draft = FileDraft::Create(folder / "copy");
  ASSERT_TRUE(draft.ok());
  EXPECT_EQ((*draft)->Append((*source)->bytes()).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(std::filesystem::exists(folder / "copy"));
}

}  // namespace
}  // namespace refit::checkpoint
