// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/model_config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "refit/checkpoint/checkpoint.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "tests/support/temp_folder.h"

namespace refit::checkpoint {
namespace {

using ::testing::HasSubstr;
using weights::Architecture;

constexpr std::string_view kLlama =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536,
  "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
  "rope_theta": 100000.0, "rope_scaling": null, "torch_dtype": "bfloat16", "tie_word_embeddings": true,
  "rms_norm_eps": 1e-05, "max_position_embeddings": 8192, "bos_token_id": 1, "eos_token_id": [2, 3]})";
constexpr std::string_view kMoe =
    R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1024,
  "dtype": "bfloat16", "num_experts": 4, "moe_intermediate_size": 64, "num_experts_per_tok": 2, "norm_topk_prob": true,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_parameters":
  {"rope_type": "default", "rope_theta": 1000000}})";

// The text with one key in front, which must not occur in it yet.
std::string With(std::string_view text, std::string_view member) {
  return "{" + std::string(member) + ", " + std::string(text.substr(1));
}
std::string Without(std::string text, std::string_view member) {
  const std::size_t at = text.find(member);
  EXPECT_NE(at, std::string::npos) << member;
  return text.erase(at, member.size());
}
std::string Refusal(const std::string& text) {
  const auto config = ParseModelConfig(text);
  return config.ok() ? "accepted" : config.status().ToString();
}

TEST(ModelConfigJsonTest, ReadsALlama) {
  const auto config = ParseModelConfig(kLlama);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->architecture, Architecture::kLlama);
  EXPECT_EQ(config->layer_count, 30);
  EXPECT_EQ(config->kv_head_count, 3);
  EXPECT_EQ(config->head_size, 64);  // hidden_size / heads, since head_dim is not there
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->rope_theta, 100000.0);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_EQ(config->bos_token, 1);
  EXPECT_EQ(config->eos_token, 2);  // the first of a list
}

TEST(ModelConfigJsonTest, ReadsAQwen3MoeWithTheNewerKeys) {
  const auto config = ParseModelConfig(kMoe);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->architecture, Architecture::kQwen3Moe);
  EXPECT_EQ(config->expert_count, 4);
  EXPECT_EQ(config->expert_intermediate_size, 64);
  EXPECT_EQ(config->experts_per_token, 2);
  EXPECT_EQ(config->rope_theta, 1e6);
  EXPECT_EQ(config->eos_token, -1);
  EXPECT_FALSE(config->tie_word_embeddings);
}

TEST(ModelConfigJsonTest, WhatItWritesItReadsBack) {
  for (const char* shape : {"tiny", "tiny-llama", "tiny-moe", "qwen3-0.6b", "moe-18k"}) {
    const auto config = RandomShape(shape);
    ASSERT_TRUE(config.ok());
    const auto read = ParseModelConfig(FormatModelConfig(*config, 7));
    ASSERT_TRUE(read.ok()) << shape << ": " << read.status().ToString();
    EXPECT_EQ(FormatModelConfig(*read, 7), FormatModelConfig(*config, 7));
  }
}

TEST(ModelConfigJsonTest, OtherArchitecturesAreRefusedWithTheSupportedOnes) {
  const std::string refusal = Refusal(R"({"architectures": ["MambaForCausalLM"]})");
  EXPECT_THAT(refusal, HasSubstr("MambaForCausalLM"));
  EXPECT_THAT(refusal, HasSubstr("LlamaForCausalLM, Qwen3ForCausalLM or Qwen3MoeForCausalLM"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("architectures"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal(R"({"architectures": [3]})"), HasSubstr("architectures"));
}

TEST(ModelConfigJsonTest, WhatWouldChangeTheModelIsRefusedByKeyAndValue) {
  EXPECT_THAT(Refusal(With(kLlama, R"("attention_bias": true)")), HasSubstr("attention_bias is true"));
  EXPECT_THAT(Refusal(With(kLlama, R"("mlp_bias": true)")), HasSubstr("mlp_bias is true"));
  EXPECT_THAT(Refusal(With(kLlama, R"("quantization_config": {"bits": 4})")), HasSubstr("quantization_config"));
  EXPECT_THAT(Refusal(With(kLlama, R"("hidden_act": "gelu")")), HasSubstr("gelu"));
  EXPECT_THAT(Refusal(With(kLlama, R"("rope_parameters": {"rope_type": "yarn", "factor": 4.0})")), HasSubstr("yarn"));
  EXPECT_THAT(Refusal(With(Without(std::string(kLlama), R"("rope_scaling": null, )"),
                           R"("rope_scaling": {"type": "linear", "factor": 2.0})")),
              HasSubstr("rope_scaling is {"));
  EXPECT_THAT(
      Refusal(With(Without(std::string(kLlama), R"("torch_dtype": "bfloat16", )"), R"("torch_dtype": "float16")")),
      HasSubstr("float16"));
  EXPECT_THAT(Refusal(Without(std::string(kLlama), R"("torch_dtype": "bfloat16", )")),
              HasSubstr("torch_dtype is missing"));
  EXPECT_THAT(Refusal(With(Without(std::string(kMoe), R"("mlp_only_layers": [], )"), R"("mlp_only_layers": [0])")),
              HasSubstr("mlp_only_layers is [0]"));
  EXPECT_THAT(Refusal(With(Without(std::string(kMoe), R"("decoder_sparse_step": 1, )"), R"("decoder_sparse_step": 2)")),
              HasSubstr("decoder_sparse_step is 2"));
}

TEST(ModelConfigJsonTest, MissingAndWrongNumbersAreNamed) {
  EXPECT_THAT(Refusal(Without(std::string(kLlama), R"("hidden_size": 576, )")), HasSubstr("hidden_size is missing"));
  EXPECT_THAT(Refusal(Without(std::string(kMoe), R"("num_experts": 4, )")), HasSubstr("num_experts is missing"));
  EXPECT_THAT(Refusal(With(Without(std::string(kLlama), R"("vocab_size": 49152,)"), R"("vocab_size": 1.5)")),
              HasSubstr("vocab_size is 1.5"));
  EXPECT_NE(Refusal(With(Without(std::string(kLlama), R"("vocab_size": 49152,)"), R"("vocab_size": -1)")), "accepted");
  EXPECT_NE(Refusal(With(Without(std::string(kLlama), R"("num_attention_heads": 9, )"), R"("num_attention_heads": 0)")),
            "accepted");
}

TEST(ModelConfigJsonTest, AnErrorNamesTheFile) {
  const test::TempFolder folder;
  folder.Write("config.json", "{");
  EXPECT_THAT(ReadModelConfig(folder.path()).status().message(), HasSubstr(folder / "config.json: bad JSON at byte"));
}

}  // namespace
}  // namespace refit::checkpoint
