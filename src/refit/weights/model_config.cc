// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/model_config.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::weights {
namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 30;
constexpr std::int64_t kMaxTensorCount = std::int64_t{1} << 20;  // layers × experts × 3 of a config.json we believe
constexpr std::int64_t kMaxTpSize = 1024;                        // sizes beyond are not proposed

struct Dimension {
  std::string_view name;
  std::int64_t value;
};

bool IsMoe(const ModelConfig& config) { return config.architecture == Architecture::kQwen3Moe; }

std::vector<Dimension> Dimensions(const ModelConfig& config) {
  std::vector<Dimension> out = {{"layers", config.layer_count},  {"hidden size", config.hidden_size},
                                {"heads", config.head_count},    {"KV heads", config.kv_head_count},
                                {"head size", config.head_size}, {"vocabulary size", config.vocab_size}};
  if (IsMoe(config)) {
    out.push_back({"experts", config.expert_count});
    out.push_back({"expert intermediate size", config.expert_intermediate_size});
    out.push_back({"experts per token", config.experts_per_token});
  } else {
    out.push_back({"intermediate size", config.intermediate_size});
  }
  return out;
}

// What `tp_size` does not divide, in words; empty where it fits.
std::vector<std::string> WhatDoesNotDivide(const ModelConfig& config, std::int64_t tp_size) {
  std::vector<std::string> out;
  const auto check = [&out, tp_size](std::string_view name, std::int64_t value) {
    if (value % tp_size != 0) {
      out.push_back(StrCat(name, " of ", value));
    }
  };
  if (config.head_count % tp_size != 0) {
    out.push_back(StrCat(config.head_count, " heads"));
  }
  if (config.kv_head_count % tp_size != 0 &&
      REFIT_MUTANT("RC-CFG-18/no-replication", tp_size % config.kv_head_count != 0, true)) {
    out.push_back(StrCat(config.kv_head_count, " KV heads"));
  }
  check("vocabulary", config.vocab_size);
  if (IsMoe(config)) {
    check("expert intermediate size", config.expert_intermediate_size);
  } else {
    check("intermediate size", config.intermediate_size);
  }
  return out;
}

std::string Join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    out += StrCat(out.empty() ? "" : ", ", part);
  }
  return out;
}

// Appends the tensors of one layer.
void AppendLayer(const ModelConfig& config, std::int64_t layer, std::vector<TensorSpec>& out) {
  const std::string prefix = StrCat("model.layers.", layer, ".");
  const auto add = [&](const std::string& name, Shape shape) {
    out.push_back({.name = StrCat(prefix, name, ".weight"), .dtype = config.dtype, .shape = std::move(shape)});
  };
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t query_rows = config.head_count * config.head_size;
  const std::int64_t kv_rows = config.kv_head_count * config.head_size;
  add("input_layernorm", {hidden});
  add("self_attn.q_proj", {query_rows, hidden});
  add("self_attn.k_proj", {kv_rows, hidden});
  add("self_attn.v_proj", {kv_rows, hidden});
  add("self_attn.o_proj", {hidden, query_rows});
  if (config.architecture != Architecture::kLlama) {
    add("self_attn.q_norm", {config.head_size});
    add("self_attn.k_norm", {config.head_size});
  }
  add("post_attention_layernorm", {hidden});
  const auto add_mlp = [&](const std::string& mlp, std::int64_t width) {
    add(mlp + ".gate_proj", {width, hidden});
    add(mlp + ".up_proj", {width, hidden});
    add(mlp + ".down_proj", {hidden, width});
  };
  if (!IsMoe(config)) {
    add_mlp("mlp", config.intermediate_size);
    return;
  }
  add("mlp.gate", {config.expert_count, hidden});
  for (std::int64_t expert = 0; expert < config.expert_count; ++expert) {
    add_mlp(StrCat("mlp.experts.", expert), config.expert_intermediate_size);
  }
}

}  // namespace

std::string_view ToString(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama: return "LlamaForCausalLM";
    case Architecture::kQwen3: return "Qwen3ForCausalLM";
    case Architecture::kQwen3Moe: return "Qwen3MoeForCausalLM";
  }
  return "unknown";
}

Status CheckModelConfig(const ModelConfig& config) {
  for (const Dimension& dimension : Dimensions(config)) {
    if (dimension.value <= 0 || dimension.value > kMaxDimension) {
      return InvalidArgument(StrCat("model config: ", dimension.name, " is ", dimension.value),
                             StrCat("give a number from 1 to ", kMaxDimension));
    }
  }
  if (config.head_count % config.kv_head_count != 0) {
    return InvalidArgument(
        StrCat("model config: ", config.kv_head_count, " KV heads do not divide ", config.head_count, " heads"));
  }
  if (config.head_size % 2 != 0) {
    return InvalidArgument(StrCat("model config: head size is ", config.head_size),
                           "give an even one: rotary embeddings turn pairs of values");
  }
  if (IsMoe(config) && config.experts_per_token > config.expert_count) {
    return InvalidArgument(
        StrCat("model config: ", config.experts_per_token, " experts per token of ", config.expert_count, " experts"));
  }
  const std::int64_t per_layer = IsMoe(config) ? 3 * config.expert_count : 11;
  if (config.layer_count > kMaxTensorCount / per_layer) {
    return InvalidArgument(StrCat("model config: ", config.layer_count, " layers of ", per_layer, " tensors and more"),
                           StrCat("use a model of at most ", kMaxTensorCount, " tensors"));
  }
  return OkStatus();
}

Result<Manifest> ExpectedTensors(const ModelConfig& config) {
  REFIT_RETURN_IF_ERROR(CheckModelConfig(config));
  std::vector<TensorSpec> tensors;
  const Shape table = {config.vocab_size, config.hidden_size};
  tensors.push_back({.name = "model.embed_tokens.weight", .dtype = config.dtype, .shape = table});
  for (std::int64_t layer = 0; layer < config.layer_count; ++layer) {
    AppendLayer(config, layer, tensors);
  }
  tensors.push_back({.name = "model.norm.weight", .dtype = config.dtype, .shape = {config.hidden_size}});
  if (!config.tie_word_embeddings) {
    tensors.push_back({.name = "lm_head.weight", .dtype = config.dtype, .shape = table});
  }
  return Manifest::Make(std::move(tensors));
}

Status CheckTpSize(const ModelConfig& config, std::int64_t tp_size) {
  REFIT_RETURN_IF_ERROR(CheckModelConfig(config));
  const std::vector<std::string> bad = tp_size < 1 ? std::vector<std::string>{} : WhatDoesNotDivide(config, tp_size);
  if (tp_size >= 1 && REFIT_MUTANT("RC-CFG-18/pad", bad.empty(), true)) {
    return OkStatus();
  }
  std::vector<std::string> fitting;
  for (std::int64_t size = 1; size <= std::min(config.head_count, kMaxTpSize); ++size) {
    if (WhatDoesNotDivide(config, size).empty()) {
      fitting.push_back(StrCat(size));
    }
  }
  const std::string remedy = StrCat("use a TP size of ", Join(fitting));
  if (bad.empty()) {
    return InvalidArgument(StrCat("TP size ", tp_size, " is not positive"), remedy);
  }
  return InvalidArgument(StrCat("TP size ", tp_size, " does not divide ", Join(bad)), remedy);
}

}  // namespace refit::weights
