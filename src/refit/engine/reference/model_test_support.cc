// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/model_test_support.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "refit/base/str.h"
#include "refit/engine/reference/convert.h"
#include "refit/weights/manifest.h"

namespace refit::engine::reference::testing {
namespace {

using Vector = std::vector<double>;

std::size_t Count(std::int64_t value) { return static_cast<std::size_t>(value); }

class PlainModel {
 public:
  PlainModel(const weights::ModelConfig& config, const Tensors& tensors) : config_(config), tensors_(tensors) {}

  Vector Logits(std::span<const std::int32_t> tokens) {
    std::vector<Vector> hidden;
    for (const std::int32_t token : tokens) {
      hidden.push_back(Row("model.embed_tokens.weight", Count(token)));
    }
    for (std::int64_t layer = 0; layer < config_.layer_count; ++layer) {
      const std::string prefix = StrCat("model.layers.", layer, ".");
      Attention(prefix, hidden);
      for (Vector& state : hidden) {
        Add(Mlp(prefix + "mlp.", Norm(prefix + "post_attention_layernorm.weight", state)), 1, state);
      }
    }
    return Times(config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                 Norm("model.norm.weight", hidden.back()));
  }

 private:
  Vector Row(const std::string& name, std::size_t row) const {
    const Tensor& tensor = tensors_.at(name);
    const std::size_t columns = tensor.spec.shape.size() == 1 ? tensor.values.size() : Count(tensor.spec.shape[1]);
    Vector values;
    for (std::size_t i = 0; i < columns; ++i) {
      values.push_back(static_cast<double>(FromBfloat16(tensor.values[row * columns + i])));
    }
    return values;
  }
  Vector Times(const std::string& name, const Vector& input) const {
    Vector result;
    for (std::size_t row = 0; row < Count(tensors_.at(name).spec.shape[0]); ++row) {
      const Vector weights = Row(name, row);
      result.push_back(std::inner_product(weights.begin(), weights.end(), input.begin(), 0.0));
    }
    return result;
  }
  Vector Norm(const std::string& name, const Vector& input) const {
    const Vector weights = Row(name, 0);
    const double square = std::inner_product(input.begin(), input.end(), input.begin(), 0.0);
    Vector result;
    for (std::size_t i = 0; i < input.size(); ++i) {
      result.push_back(input[i] * weights[i] /
                       std::sqrt(square / static_cast<double>(input.size()) + config_.rms_norm_eps));
    }
    return result;
  }
  static void Add(const Vector& from, double scale, Vector& into) {
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] += scale * from[i];
    }
  }
  // One head of a projection, normed and rotated.
  Vector Head(const std::string& norm, const Vector& all, std::size_t head, std::size_t position) const {
    const std::size_t size = Count(config_.head_size);
    Vector values(all.begin() + static_cast<std::ptrdiff_t>(head * size),
                  all.begin() + static_cast<std::ptrdiff_t>((head + 1) * size));
    if (config_.architecture != weights::Architecture::kLlama) {
      values = Norm(norm, values);
    }
    Vector rotated = values;
    for (std::size_t i = 0; i < size / 2; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(config_.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
      rotated[i] = values[i] * std::cos(angle) - values[i + size / 2] * std::sin(angle);
      rotated[i + size / 2] = values[i + size / 2] * std::cos(angle) + values[i] * std::sin(angle);
    }
    return rotated;
  }
  void Attention(const std::string& layer, std::vector<Vector>& hidden) const {
    const std::string prefix = layer + "self_attn.";
    const std::size_t size = Count(config_.head_size);
    std::vector<Vector> keys;
    std::vector<Vector> values;
    std::vector<Vector> outputs;
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      const Vector input = Norm(layer + "input_layernorm.weight", hidden[t]);
      const Vector queries = Times(prefix + "q_proj.weight", input);
      keys.push_back(Times(prefix + "k_proj.weight", input));
      values.push_back(Times(prefix + "v_proj.weight", input));
      Vector mixed;
      for (std::size_t h = 0; h < Count(config_.head_count); ++h) {
        const std::size_t kv = h / Count(config_.head_count / config_.kv_head_count);
        const Vector query = Head(prefix + "q_norm.weight", queries, h, t);
        Vector scores;
        for (std::size_t p = 0; p <= t; ++p) {
          const Vector key = Head(prefix + "k_norm.weight", keys[p], kv, p);
          scores.push_back(std::exp(std::inner_product(query.begin(), query.end(), key.begin(), 0.0) /
                                    std::sqrt(static_cast<double>(size))));
        }
        const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
        for (std::size_t i = 0; i < size; ++i) {
          double sum = 0;
          for (std::size_t p = 0; p <= t; ++p) {
            sum += scores[p] / total * values[p][kv * size + i];
          }
          mixed.push_back(sum);
        }
      }
      outputs.push_back(Times(prefix + "o_proj.weight", mixed));
    }
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      Add(outputs[t], 1, hidden[t]);
    }
  }
  Vector Gated(const std::string& prefix, const Vector& input) const {
    Vector gate = Times(prefix + "gate_proj.weight", input);
    const Vector up = Times(prefix + "up_proj.weight", input);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    }
    return Times(prefix + "down_proj.weight", gate);
  }
  Vector Mlp(const std::string& prefix, const Vector& input) const {
    if (config_.architecture != weights::Architecture::kQwen3Moe) {
      return Gated(prefix, input);
    }
    Vector scores = Times(prefix + "gate.weight", input);
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    order.resize(Count(config_.experts_per_token));
    double total = 0;
    for (const std::size_t expert : order) {
      total += std::exp(scores[expert]);
    }
    Vector result(input.size());
    for (const std::size_t expert : order) {  // norm_topk_prob: the softmax over the chosen ones
      Add(Gated(StrCat(prefix, "experts.", expert, "."), input), std::exp(scores[expert]) / total, result);
    }
    return result;
  }

  const weights::ModelConfig& config_;
  const Tensors& tensors_;
};

}  // namespace

weights::ModelConfig SmallConfig(weights::Architecture architecture, bool is_tied) {
  weights::ModelConfig config;
  config.architecture = architecture;
  config.layer_count = 2;
  config.hidden_size = 48;
  config.head_count = 6;
  config.kv_head_count = 3;
  config.head_size = 8;
  config.intermediate_size = 72;
  config.vocab_size = 60;
  config.tie_word_embeddings = is_tied;
  if (architecture == weights::Architecture::kQwen3Moe) {
    config.expert_count = 5;
    config.expert_intermediate_size = 24;
    config.experts_per_token = 2;
  }
  config.max_position_count = 128;
  return config;
}

Tensors RandomTensors(const weights::ModelConfig& config, std::uint64_t seed) {
  const Result<weights::Manifest> manifest = weights::ExpectedTensors(config);
  std::mt19937_64 random(seed);
  Tensors tensors;
  for (const weights::TensorSpec& spec : manifest.value().tensors()) {
    Tensor tensor = {spec, {}};
    const auto elements = weights::SizeOf(spec).value() / sizeof(std::uint16_t);
    for (ByteCount i = 0; i < elements; ++i) {
      const auto unit = static_cast<float>(random() >> 40) * 0x1.0p-23F - 1.0F;
      tensor.values.push_back(ToBfloat16(spec.shape.size() == 1 ? 1.0F + 0.5F * unit : 0.35F * unit));
    }
    tensors.emplace(spec.name, std::move(tensor));
  }
  return tensors;
}

RankModel EmptyRank(const weights::ModelConfig& config, std::uint32_t rank, std::int64_t tp_size) {
  return RankModel::Make(config, {TpRank(rank), tp_size}).value();
}

std::vector<RankModel> LoadedRanks(const weights::ModelConfig& config, const Tensors& tensors, std::int64_t tp_size) {
  std::vector<RankModel> ranks;
  for (std::uint32_t rank = 0; rank < tp_size; ++rank) {
    ranks.push_back(EmptyRank(config, rank, tp_size));
    for (const auto& [name, tensor] : tensors) {
      const LoadResult result = ranks.back().Load(tensor.spec, tensor.bytes());
      REFIT_CHECK(result.outcome == LoadOutcome::kInstalled, result.message.c_str());
    }
  }
  return ranks;
}

std::vector<const RankModel*> Pointers(const std::vector<RankModel>& ranks) {
  std::vector<const RankModel*> pointers;
  for (const RankModel& rank : ranks) {
    pointers.push_back(&rank);
  }
  return pointers;
}

std::vector<double> PlainLogits(const weights::ModelConfig& config, const Tensors& tensors,
                                std::span<const std::int32_t> tokens) {
  return PlainModel(config, tensors).Logits(tokens);
}

}  // namespace refit::engine::reference::testing
