// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/model_config.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/model_shapes.h"

namespace refit::weights {
namespace {

using test::LlamaSmall;
using test::MoeLarge;
using test::Qwen3Small;

TEST(ExpectedTensorsTest, Qwen3With600MillionParameters) {
  const Manifest manifest = ExpectedTensors(Qwen3Small()).value();
  EXPECT_EQ(manifest.tensor_count(), 310u);
  EXPECT_EQ(manifest.total_size(), 1'192'099'840u);
  EXPECT_EQ(manifest.tensors()[*manifest.Find("model.layers.27.self_attn.q_proj.weight")].shape, (Shape{2048, 1024}));
  EXPECT_EQ(manifest.tensors()[*manifest.Find("model.layers.0.self_attn.k_norm.weight")].shape, (Shape{128}));
  EXPECT_EQ(manifest.tensors()[*manifest.Find("model.layers.0.mlp.down_proj.weight")].shape, (Shape{1024, 3072}));
  EXPECT_FALSE(manifest.Find("lm_head.weight").has_value());
}

TEST(ExpectedTensorsTest, UntiedEmbeddingsHaveAHead) {  // D11: 311 tensors, 1.503e9 bytes
  ModelConfig config = Qwen3Small();
  config.tie_word_embeddings = false;
  const Manifest manifest = ExpectedTensors(config).value();
  EXPECT_EQ(manifest.tensor_count(), 311u);
  EXPECT_EQ(manifest.total_size(), 1'503'264'768u);
}

TEST(ExpectedTensorsTest, LlamaWith135MillionParameters) {
  const Manifest manifest = ExpectedTensors(LlamaSmall()).value();
  EXPECT_EQ(manifest.tensor_count(), 272u);
  EXPECT_EQ(manifest.total_size(), 269'030'016u);
  EXPECT_FALSE(manifest.Find("model.layers.0.self_attn.q_norm.weight").has_value());
}

TEST(ExpectedTensorsTest, MixtureOfExpertsHasThreeTensorsPerExpert) {  // D12: moe-18k
  const Manifest manifest = ExpectedTensors(MoeLarge()).value();
  EXPECT_EQ(manifest.tensor_count(), 48u * (9 + 128 * 3) + 3);
  ByteCount experts = 0;
  for (std::size_t i = 0; i < manifest.tensor_count(); ++i) {
    experts += manifest.tensors()[i].name.find(".experts.") == std::string::npos ? 0 : manifest.size(i);
  }
  EXPECT_EQ(experts, 1'207'959'552u);
}

TEST(CheckModelConfigTest, RefusesDimensionsThatCannotBe) {
  const auto refused = [](auto change) {
    ModelConfig config = Qwen3Small();
    change(config);
    return !CheckModelConfig(config).ok() && !ExpectedTensors(config).ok() && !CheckTpSize(config, 1).ok();
  };
  EXPECT_TRUE(CheckModelConfig(Qwen3Small()).ok());
  EXPECT_TRUE(refused([](ModelConfig& config) { config.kv_head_count = 0; }));
  EXPECT_TRUE(refused([](ModelConfig& config) { config.vocab_size = -5; }));
  EXPECT_TRUE(refused([](ModelConfig& config) { config.kv_head_count = 3; }));
  EXPECT_TRUE(refused([](ModelConfig& config) { config.head_size = 127; }));
  EXPECT_TRUE(refused([](ModelConfig& config) { config.layer_count = 1'000'000'000; }));
  EXPECT_TRUE(refused([](ModelConfig& config) { config.hidden_size = std::int64_t{1} << 40; }));
  ModelConfig moe = MoeLarge();
  moe.experts_per_token = moe.expert_count + 1;
  EXPECT_FALSE(CheckModelConfig(moe).ok());
}

// RC-CFG-18, D4
TEST(CheckTpSizeTest, ThreeFitsAModelOfNineHeadsAndTwoIsRefusedWithWhatDoesFit) {
  EXPECT_TRUE(CheckTpSize(LlamaSmall(), 1).ok());
  EXPECT_TRUE(CheckTpSize(LlamaSmall(), 3).ok());
  EXPECT_EQ(CheckTpSize(LlamaSmall(), 2).ToString(),
            "INVALID_ARGUMENT: TP size 2 does not divide 9 heads, 3 KV heads (use a TP size of 1, 3)");
  EXPECT_EQ(CheckTpSize(LlamaSmall(), 9).message(),
            "TP size 9 does not divide vocabulary of 49152, intermediate size of 1536");
}

TEST(CheckTpSizeTest, KvHeadsFewerThanRanksAreReplicated) {
  EXPECT_TRUE(CheckTpSize(Qwen3Small(), 8).ok());
  EXPECT_TRUE(CheckTpSize(Qwen3Small(), 16).ok());
  EXPECT_FALSE(CheckTpSize(Qwen3Small(), 32).ok());
}

TEST(CheckTpSizeTest, ExpertsAreDividedByTheirOwnWidth) {
  ModelConfig config = MoeLarge();
  config.intermediate_size = 7;  // no dense layer uses it
  EXPECT_TRUE(CheckTpSize(config, 4).ok());
  config.expert_intermediate_size = 130;
  EXPECT_EQ(CheckTpSize(config, 4).message(), "TP size 4 does not divide expert intermediate size of 130");
}

TEST(CheckTpSizeTest, SizesBelowOneAreRefused) {
  EXPECT_EQ(CheckTpSize(LlamaSmall(), 0).ToString(),
            "INVALID_ARGUMENT: TP size 0 is not positive (use a TP size of 1, 3)");
  EXPECT_FALSE(CheckTpSize(LlamaSmall(), -3).ok());
}

}  // namespace
}  // namespace refit::weights
