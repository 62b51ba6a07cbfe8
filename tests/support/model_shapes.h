// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// The shapes of real models that tests of several folders use.

#pragma once

#include "refit/weights/model_config.h"

namespace refit::test {

// Qwen3-0.6B
inline weights::ModelConfig Qwen3Small() {
  weights::ModelConfig config;
  config.architecture = weights::Architecture::kQwen3;
  config.layer_count = 28;
  config.hidden_size = 1024;
  config.head_count = 16;
  config.kv_head_count = 8;
  config.head_size = 128;
  config.intermediate_size = 3072;
  config.vocab_size = 151936;
  config.tie_word_embeddings = true;
  return config;
}

// SmolLM2-135M
inline weights::ModelConfig LlamaSmall() {
  weights::ModelConfig config;
  config.architecture = weights::Architecture::kLlama;
  config.layer_count = 30;
  config.hidden_size = 576;
  config.head_count = 9;
  config.kv_head_count = 3;
  config.head_size = 64;
  config.intermediate_size = 1536;
  config.vocab_size = 49152;
  config.tie_word_embeddings = true;
  return config;
}

// The bench's moe-18k (D12)
inline weights::ModelConfig MoeLarge() {
  weights::ModelConfig config;
  config.architecture = weights::Architecture::kQwen3Moe;
  config.layer_count = 48;
  config.hidden_size = 256;
  config.head_count = 8;
  config.kv_head_count = 4;
  config.head_size = 64;
  config.vocab_size = 1024;
  config.expert_count = 128;
  config.expert_intermediate_size = 128;
  config.experts_per_token = 8;
  return config;
}

}  // namespace refit::test
