// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The dimensions of a model that decide which tensors a checkpoint has and how an engine lays them out.
// checkpoint/model_config_json.h reads one from config.json.

#pragma once

#include <cstdint>
#include <string_view>

#include "refit/base/status.h"
#include "refit/weights/dtype.h"
#include "refit/weights/manifest.h"

namespace refit::weights {

enum class Architecture : std::uint8_t { kLlama, kQwen3, kQwen3Moe };
std::string_view ToString(Architecture architecture);  // Hugging Face's "LlamaForCausalLM" …

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  DType dtype = DType::kBfloat16;
  std::int64_t layer_count = 0;
  std::int64_t hidden_size = 0;
  std::int64_t head_count = 0;
  std::int64_t kv_head_count = 0;
  std::int64_t head_size = 0;          // head_dim; hidden_size / head_count where config.json does not say
  std::int64_t intermediate_size = 0;  // dense MLP
  std::int64_t vocab_size = 0;
  bool tie_word_embeddings = false;
  // Qwen3-MoE only (every layer is sparse):
  std::int64_t expert_count = 0;
  std::int64_t expert_intermediate_size = 0;
  std::int64_t experts_per_token = 0;
  bool norm_topk_prob = true;
  // What the forward pass needs besides:
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::int64_t max_position_count = 4096;
  std::int64_t bos_token = -1;  // -1: none
  std::int64_t eos_token = -1;
};

// OK when every dimension is positive and they agree with one another.
Status CheckModelConfig(const ModelConfig& config);

// The tensors of a Hugging Face checkpoint of this model, in layer order: what a full refit must bring.
// lm_head.weight only where embeddings are not tied.
Result<Manifest> ExpectedTensors(const ModelConfig& config);

// RC-CFG-18, settled D4: tp must divide heads, vocabulary and intermediate size(s), and divide the KV heads or be a
// multiple of them. The error names what does not divide and the sizes that do.
Status CheckTpSize(const ModelConfig& config, std::int64_t tp_size);

}  // namespace refit::weights
