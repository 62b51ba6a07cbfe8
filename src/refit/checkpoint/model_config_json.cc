// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/model_config_json.h"

#include <array>
#include <optional>

#include <fmt/format.h>

#include "refit/checkpoint/checkpoint.h"
#include "refit/checkpoint/file.h"
#include "refit/checkpoint/json.h"

namespace refit::checkpoint {
namespace {

using Kind = JsonValue::Kind;
using weights::Architecture;
using weights::ModelConfig;

constexpr ByteCount kConfigMax = 16 * kMiB;
constexpr std::int64_t kGeneratorVersion = 1;  // of random weights: a new one makes old folders be written anew
constexpr const char* kSupported = "use a LlamaForCausalLM, Qwen3ForCausalLM or Qwen3MoeForCausalLM checkpoint";

// Reads keys of one object; the first thing wrong is kept, so that a caller reads all it wants and asks once.
class KeyReader {
 public:
  explicit KeyReader(const JsonValue& object) : object_(object) {}

  // Null counts as absent, as in Hugging Face's own reader.
  const JsonValue* Find(std::string_view key) const {
    const JsonValue* value = object_.Find(key);
    return value == nullptr || value->is(Kind::kNull) ? nullptr : value;
  }
  std::int64_t Integer(std::string_view key, std::optional<std::int64_t> fallback) {
    const JsonValue* value = Present(key, fallback.has_value());
    if (value == nullptr) {
      return fallback.value_or(0);
    }
    if (!value->is(Kind::kInteger)) {
      Fail(key, *value, "an integer is needed");
    }
    return value->integer;
  }
  double Number(std::string_view key, double fallback) {
    const JsonValue* value = Find(key);
    if (value == nullptr) {
      return fallback;
    }
    if ((!value->is(Kind::kNumber) && !value->is(Kind::kInteger)) || !(value->number > 0)) {
      Fail(key, *value, "a positive number is needed");
    }
    return value->number;
  }
  bool Flag(std::string_view key, std::optional<bool> fallback) {
    const JsonValue* value = Present(key, fallback.has_value());
    if (value == nullptr) {
      return fallback.value_or(false);
    }
    if (!value->is(Kind::kBool)) {
      Fail(key, *value, "true or false is needed");
    }
    return value->boolean;
  }
  // A token id, or a list of them of which the first counts; -1 where there is none.
  std::int64_t Token(std::string_view key) {
    const JsonValue* value = Find(key);
    if (value != nullptr && value->is(Kind::kArray) && !value->items.empty()) {
      value = &value->items.front();
    }
    if (value == nullptr) {
      return -1;
    }
    if (!value->is(Kind::kInteger) || value->integer < 0) {
      Fail(key, *value, "a token id is needed");
    }
    return value->integer;
  }
  void Fail(std::string_view key, const JsonValue& value, std::string_view why) {
    Fail(fmt::format("{} is {}: {}", key, ToString(value), why));
  }
  void Fail(std::string message) {
    if (status_.ok()) {
      status_ = InvalidArgument(std::move(message), kSupported);
    }
  }
  const Status& status() const { return status_; }

 private:
  const JsonValue* Present(std::string_view key, bool optional) {
    const JsonValue* value = Find(key);
    if (value == nullptr && !optional) {
      Fail(fmt::format("{} is missing", key));
    }
    return value;
  }

  const JsonValue& object_;
  Status status_;
};

std::optional<Architecture> ReadArchitecture(KeyReader& keys) {
  const JsonValue* list = keys.Find("architectures");
  if (list == nullptr || !list->is(Kind::kArray) || list->items.empty() || !list->items[0].is(Kind::kString)) {
    keys.Fail("architectures names no model class");
    return std::nullopt;
  }
  constexpr std::array kKnown = {Architecture::kLlama, Architecture::kQwen3, Architecture::kQwen3Moe};
  for (const Architecture architecture : kKnown) {
    if (list->items[0].text == weights::ToString(architecture)) {
      return architecture;
    }
  }
  keys.Fail("architectures", *list, "it is not supported");
  return std::nullopt;
}

// Newer files keep RoPE's keys in rope_parameters, older ones in rope_theta and rope_scaling.
void ReadRope(KeyReader& keys, ModelConfig& config) {
  config.rope_theta = keys.Number("rope_theta", config.rope_theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const JsonValue* rope = keys.Find(key);
    if (rope == nullptr) {
      continue;
    }
    const JsonValue* type = rope->Find("rope_type");
    type = type != nullptr ? type : rope->Find("type");
    if (!rope->is(Kind::kObject) || (type != nullptr && type->text != "default")) {
      keys.Fail(key, *rope, "scaled rotary embeddings are not supported");
      continue;
    }
    if (const JsonValue* theta = rope->Find("rope_theta"); theta != nullptr) {
      if (!(theta->number > 0)) {
        keys.Fail(key, *rope, "rope_theta must be a positive number");
      }
      config.rope_theta = theta->number;
    }
  }
}

void RefuseVariants(KeyReader& keys) {
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    if (keys.Flag(key, false)) {
      keys.Fail(fmt::format("{} is true: it is not supported", key));
    }
  }
  if (const JsonValue* value = keys.Find("quantization_config")) {
    keys.Fail("quantization_config", *value, "quantised weights are not supported");
  }
  if (const JsonValue* value = keys.Find("hidden_act"); value != nullptr && value->text != "silu") {
    keys.Fail("hidden_act", *value, "only \"silu\" is supported");
  }
  const JsonValue* dtype = keys.Find("torch_dtype") != nullptr ? keys.Find("torch_dtype") : keys.Find("dtype");
  if (dtype == nullptr) {
    keys.Fail("torch_dtype is missing");
  } else if (dtype->text != "bfloat16") {
    keys.Fail("torch_dtype", *dtype, "only \"bfloat16\" is supported");
  }
}

void ReadExperts(KeyReader& keys, ModelConfig& config) {
  config.expert_count = keys.Integer("num_experts", std::nullopt);
  config.expert_intermediate_size = keys.Integer("moe_intermediate_size", std::nullopt);
  config.experts_per_token = keys.Integer("num_experts_per_tok", std::nullopt);
  config.norm_topk_prob = keys.Flag("norm_topk_prob", false);
  const JsonValue* dense = keys.Find("mlp_only_layers");
  if (dense != nullptr && (!dense->is(Kind::kArray) || !dense->items.empty())) {
    keys.Fail("mlp_only_layers", *dense, "only models whose every layer is sparse are supported");
  }
  if (const JsonValue* step = keys.Find("decoder_sparse_step"); step != nullptr && step->integer != 1) {
    keys.Fail("decoder_sparse_step", *step, "only models whose every layer is sparse are supported");
  }
}

}  // namespace

Result<ModelConfig> ParseModelConfig(std::string_view text) {
  REFIT_ASSIGN_OR_RETURN(const JsonValue tree, ParseJson(text));
  if (!tree.is(Kind::kObject)) {
    return InvalidArgument("it is not a JSON object", kSupported);
  }
  KeyReader keys(tree);
  const auto architecture = ReadArchitecture(keys);
  if (!architecture) {
    return keys.status();
  }
  const bool llama = *architecture == Architecture::kLlama;
  ModelConfig config;
  config.architecture = *architecture;
  config.layer_count = keys.Integer("num_hidden_layers", std::nullopt);
  config.hidden_size = keys.Integer("hidden_size", std::nullopt);
  config.head_count = keys.Integer("num_attention_heads", std::nullopt);
  config.kv_head_count = keys.Integer("num_key_value_heads", llama ? std::optional(config.head_count) : std::nullopt);
  config.head_size =
      keys.Integer("head_dim", config.head_count > 0 ? config.hidden_size / config.head_count : std::int64_t{0});
  config.intermediate_size = keys.Integer("intermediate_size", std::nullopt);
  config.vocab_size = keys.Integer("vocab_size", std::nullopt);
  config.tie_word_embeddings = keys.Flag("tie_word_embeddings", false);
  config.rms_norm_eps = keys.Number("rms_norm_eps", config.rms_norm_eps);
  config.max_position_count = keys.Integer("max_position_embeddings", config.max_position_count);
  config.bos_token = keys.Token("bos_token_id");
  config.eos_token = keys.Token("eos_token_id");
  ReadRope(keys, config);
  RefuseVariants(keys);
  if (config.architecture == Architecture::kQwen3Moe) {
    ReadExperts(keys, config);
  }
  REFIT_RETURN_IF_ERROR(keys.status());
  REFIT_RETURN_IF_ERROR(weights::CheckModelConfig(config));
  return config;
}

std::string FormatModelConfig(const ModelConfig& config, std::uint64_t seed) {
  const auto token = [](std::int64_t id) { return id < 0 ? std::string("null") : std::to_string(id); };
  const auto model_type = [&config] {
    switch (config.architecture) {
      case Architecture::kLlama: return "llama";
      case Architecture::kQwen3: return "qwen3";
      case Architecture::kQwen3Moe: return "qwen3_moe";
    }
    return "";
  };
  std::string text = "{\n";
  const auto add = [&text](std::string_view key, std::string_view value) {
    text += fmt::format(" \"{}\": {},\n", key, value);
  };
  add("architectures", fmt::format("[{}]", Quote(weights::ToString(config.architecture))));
  add("model_type", Quote(model_type()));
  add("hidden_size", std::to_string(config.hidden_size));
  add("intermediate_size", std::to_string(config.intermediate_size));
  add("num_hidden_layers", std::to_string(config.layer_count));
  add("num_attention_heads", std::to_string(config.head_count));
  add("num_key_value_heads", std::to_string(config.kv_head_count));
  add("head_dim", std::to_string(config.head_size));
  if (config.architecture == Architecture::kQwen3Moe) {
    add("num_experts", std::to_string(config.expert_count));
    add("moe_intermediate_size", std::to_string(config.expert_intermediate_size));
    add("num_experts_per_tok", std::to_string(config.experts_per_token));
    add("norm_topk_prob", config.norm_topk_prob ? "true" : "false");
    add("decoder_sparse_step", "1");
    add("mlp_only_layers", "[]");
  }
  add("hidden_act", Quote("silu"));
  add("max_position_embeddings", std::to_string(config.max_position_count));
  add("rms_norm_eps", fmt::format("{}", config.rms_norm_eps));
  add("rope_theta", fmt::format("{:.1f}", config.rope_theta));
  add("rope_scaling", "null");
  add("vocab_size", std::to_string(config.vocab_size));
  add("tie_word_embeddings", config.tie_word_embeddings ? "true" : "false");
  add("torch_dtype", Quote(weights::TorchName(config.dtype)));
  add("bos_token_id", token(config.bos_token));
  add("eos_token_id", token(config.eos_token));
  add("attention_bias", "false");
  add("mlp_bias", "false");
  add("attention_dropout", "0.0");
  add("initializer_range", "0.02");
  add("use_cache", "true");
  text += fmt::format(" \"refit_random\": {{\"seed\": {}, \"generator\": {}}}\n}}\n", seed, kGeneratorVersion);
  return text;
}

Result<ModelConfig> ReadModelConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  REFIT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigMax));
  auto config = ParseModelConfig(text);
  if (!config.ok()) {
    return config.status().WithContext(path);
  }
  return config;
}

}  // namespace refit::checkpoint
