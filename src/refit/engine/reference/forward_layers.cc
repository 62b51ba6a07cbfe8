// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/forward_layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "refit/base/check.h"
#include "refit/base/str.h"
#include "refit/engine/reference/convert.h"

namespace refit::engine::reference {
namespace {

std::size_t Index(const RankModel& rank, const std::string& name) {
  const std::optional<std::size_t> index = rank.Find(name);
  REFIT_CHECK(index.has_value(), name.c_str());
  return *index;
}

std::size_t RowCount(const RankModel& rank, std::size_t parameter) {
  return static_cast<std::size_t>(rank.parameters()[parameter].row_count);
}

// silu(gate) * up, per token: rows hold gate then up.
void Activate(const float* gate_up, std::size_t width, float* into) {
  for (std::size_t i = 0; i < width; ++i) {
    const float gate = gate_up[i];
    into[i] = gate / (1.0F + std::exp(-gate)) * gate_up[width + i];
  }
}

void Softmax(float* values, std::size_t count) {
  const float top = *std::max_element(values, values + count);
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::exp(values[i] - top);
    sum += values[i];
  }
  for (std::size_t i = 0; i < count; ++i) {
    values[i] /= sum;
  }
}

}  // namespace

Layers::Layers(std::vector<const RankModel*> ranks, std::size_t thread_count)
    : ranks_(std::move(ranks)),
      config_(ranks_.front()->config()),
      hidden_size_(static_cast<std::size_t>(config_.hidden_size)),
      head_size_(static_cast<std::size_t>(config_.head_size)),
      heads_(static_cast<std::size_t>(config_.head_count) / ranks_.size()),
      kv_heads_(std::max<std::size_t>(static_cast<std::size_t>(config_.kv_head_count) / ranks_.size(), 1)),
      is_sparse_(config_.architecture == weights::Architecture::kQwen3Moe),
      multiplier_(thread_count) {
  const RankModel& rank = *ranks_.front();
  for (std::int64_t i = 0; i < config_.layer_count; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerParameters layer;
    layer.input_norm = Index(rank, prefix + "input_layernorm.weight");
    layer.qkv = Index(rank, prefix + "self_attn.qkv_proj.weight");
    if (config_.architecture != weights::Architecture::kLlama) {
      layer.q_norm = Index(rank, prefix + "self_attn.q_norm.weight");
      layer.k_norm = Index(rank, prefix + "self_attn.k_norm.weight");
    }
    layer.o = Index(rank, prefix + "self_attn.o_proj.weight");
    layer.post_norm = Index(rank, prefix + "post_attention_layernorm.weight");
    if (is_sparse_) {
      layer.router = Index(rank, prefix + "mlp.gate.weight");
      layer.w13 = Index(rank, prefix + "mlp.experts.w13_weight");
      layer.w2 = Index(rank, prefix + "mlp.experts.w2_weight");
    } else {
      layer.gate_up = Index(rank, prefix + "mlp.gate_up_proj.weight");
      layer.down = Index(rank, prefix + "mlp.down_proj.weight");
    }
    layers_.push_back(layer);
  }
  embedding_ = Index(rank, "model.embed_tokens.weight");
  last_norm_ = Index(rank, "model.norm.weight");
  head_ = config_.tie_word_embeddings ? embedding_ : Index(rank, "lm_head.weight");
}

void Layers::Run(std::span<const TokenId> tokens, std::size_t first, std::vector<std::vector<LayerCache>>& cache) {
  token_count_ = tokens.size();
  normed_.resize(token_count_ * hidden_size_);
  partial_.resize(token_count_ * hidden_size_);
  sum_.assign(token_count_ * hidden_size_, 0.0F);
  Embed(tokens);
  PrepareRotation(first, token_count_);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Attend(layers_[i], first, cache[i]);
    if (is_sparse_) {
      Sparse(layers_[i]);
    } else {
      Dense(layers_[i]);
    }
  }
}

void Layers::Embed(std::span<const TokenId> tokens) {
  hidden_.resize(token_count_ * hidden_size_);
  const std::size_t rows_per_rank = RowCount(*ranks_.front(), embedding_);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto row = static_cast<std::size_t>(tokens[t]);
    const std::uint16_t* from = ranks_[row / rows_per_rank]->values(embedding_) + row % rows_per_rank * hidden_size_;
    std::transform(from, from + hidden_size_, hidden_.data() + t * hidden_size_, FromBfloat16);
  }
}

void Layers::PrepareRotation(std::size_t first, std::size_t count) {
  const std::size_t half = head_size_ / 2;
  cosines_.resize(count * half);
  sines_.resize(count * half);
  for (std::size_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(config_.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size_));
    for (std::size_t t = 0; t < count; ++t) {
      const double angle = static_cast<double>(first + t) * frequency;
      cosines_[t * half + i] = static_cast<float>(std::cos(angle));
      sines_[t * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

// Hugging Face's rotation: element i turns with element i + half.
void Layers::Rotate(std::size_t token, float* head) const {
  const std::size_t half = head_size_ / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const float cosine = cosines_[token * half + i];
    const float sine = sines_[token * half + i];
    const float low = head[i];
    const float high = head[half + i];
    head[i] = low * cosine - high * sine;
    head[half + i] = high * cosine + low * sine;
  }
}

void Layers::Norm(const std::uint16_t* weights, const float* from, std::size_t count, float* into) const {
  const float mean_square = Dot(multiplier_.arithmetic(), from, from, count) / static_cast<float>(count);
  const float scale = 1.0F / std::sqrt(mean_square + static_cast<float>(config_.rms_norm_eps));
  for (std::size_t i = 0; i < count; ++i) {
    into[i] = from[i] * scale * FromBfloat16(weights[i]);
  }
}

void Layers::NormTokens(const std::uint16_t* weights) {
  for (std::size_t t = 0; t < token_count_; ++t) {
    Norm(weights, hidden_.data() + t * hidden_size_, hidden_size_, normed_.data() + t * hidden_size_);
  }
}

void Layers::AddPartial() { AddScaled(multiplier_.arithmetic(), 1.0F, partial_.data(), partial_.size(), sum_.data()); }

void Layers::AddSum() {
  AddScaled(multiplier_.arithmetic(), 1.0F, sum_.data(), sum_.size(), hidden_.data());
  std::fill(sum_.begin(), sum_.end(), 0.0F);
}

void Layers::Attend(const LayerParameters& layer, std::size_t first, std::vector<LayerCache>& cache) {
  const std::size_t width = heads_ * head_size_;
  const std::size_t fused_width = width + 2 * kv_heads_ * head_size_;
  fused_.resize(token_count_ * fused_width);
  mixed_.resize(token_count_ * width);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankModel& rank = *ranks_[r];
    NormTokens(rank.values(layer.input_norm));
    multiplier_.Multiply(rank.values(layer.qkv), fused_width, hidden_size_, normed_.data(), token_count_,
                         fused_.data());
    AppendToCache(rank, layer, cache[r]);
    AttendOnRank(first, cache[r]);
    multiplier_.Multiply(rank.values(layer.o), hidden_size_, width, mixed_.data(), token_count_, partial_.data());
    AddPartial();
  }
  AddSum();
}

// Norms and rotates the block's queries and keys where they are, and appends keys and values.
void Layers::AppendToCache(const RankModel& rank, const LayerParameters& layer, LayerCache& cache) {
  const bool has_norms = config_.architecture != weights::Architecture::kLlama;
  const std::size_t fused_heads = heads_ + 2 * kv_heads_;
  const std::size_t kv_width = kv_heads_ * head_size_;
  for (std::size_t t = 0; t < token_count_; ++t) {
    float* row = fused_.data() + t * fused_heads * head_size_;
    for (std::size_t h = 0; h < heads_ + kv_heads_; ++h) {
      float* head = row + h * head_size_;
      if (has_norms) {
        Norm(rank.values(h < heads_ ? layer.q_norm : layer.k_norm), head, head_size_, head);
      }
      Rotate(t, head);
    }
    const float* keys = row + heads_ * head_size_;
    cache.keys.insert(cache.keys.end(), keys, keys + kv_width);
    cache.values.insert(cache.values.end(), keys + kv_width, keys + 2 * kv_width);
  }
}

void Layers::AttendOnRank(std::size_t first, const LayerCache& cache) {
  const Arithmetic arithmetic = multiplier_.arithmetic();
  const std::size_t queries_per_kv = heads_ / kv_heads_;
  const std::size_t kv_width = kv_heads_ * head_size_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_size_));
  scores_.resize(first + token_count_);
  for (std::size_t t = 0; t < token_count_; ++t) {
    const std::size_t seen = first + t + 1;  // causal
    for (std::size_t h = 0; h < heads_; ++h) {
      const float* query = fused_.data() + (t * (heads_ + 2 * kv_heads_) + h) * head_size_;
      const std::size_t kv_offset = h / queries_per_kv * head_size_;
      for (std::size_t position = 0; position < seen; ++position) {
        const float* key = cache.keys.data() + position * kv_width + kv_offset;
        scores_[position] = Dot(arithmetic, query, key, head_size_) * scale;
      }
      Softmax(scores_.data(), seen);
      float* output = mixed_.data() + (t * heads_ + h) * head_size_;
      std::fill(output, output + head_size_, 0.0F);
      for (std::size_t position = 0; position < seen; ++position) {
        AddScaled(arithmetic, scores_[position], cache.values.data() + position * kv_width + kv_offset, head_size_,
                  output);
      }
    }
  }
}

void Layers::Dense(const LayerParameters& layer) {
  const std::size_t width = RowCount(*ranks_.front(), layer.gate_up) / 2;
  fused_.resize(token_count_ * 2 * width);
  mixed_.resize(token_count_ * width);
  for (const RankModel* rank : ranks_) {
    NormTokens(rank->values(layer.post_norm));
    multiplier_.Multiply(rank->values(layer.gate_up), 2 * width, hidden_size_, normed_.data(), token_count_,
                         fused_.data());
    for (std::size_t t = 0; t < token_count_; ++t) {
      Activate(fused_.data() + t * 2 * width, width, mixed_.data() + t * width);
    }
    multiplier_.Multiply(rank->values(layer.down), hidden_size_, width, mixed_.data(), token_count_, partial_.data());
    AddPartial();
  }
  AddSum();
}

void Layers::Sparse(const LayerParameters& layer) {
  const auto experts = static_cast<std::size_t>(config_.expert_count);
  const auto chosen = static_cast<std::size_t>(config_.experts_per_token);
  const std::size_t width = RowCount(*ranks_.front(), layer.w13) / experts / 2;
  std::vector<float> scores(experts);
  std::vector<std::size_t> order(experts);
  for (const RankModel* rank : ranks_) {
    NormTokens(rank->values(layer.post_norm));
    std::fill(partial_.begin(), partial_.end(), 0.0F);
    for (std::size_t t = 0; t < token_count_; ++t) {
      const float* input = normed_.data() + t * hidden_size_;
      multiplier_.Multiply(rank->values(layer.router), experts, hidden_size_, input, 1, scores.data());
      Softmax(scores.data(), experts);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::partial_sort(
          order.begin(), order.begin() + static_cast<std::ptrdiff_t>(chosen), order.end(),
          [&](std::size_t a, std::size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
      float total = 0;
      for (std::size_t i = 0; i < chosen; ++i) {
        total += scores[order[i]];
      }
      for (std::size_t i = 0; i < chosen; ++i) {
        const std::size_t expert = order[i];
        RunExpert(rank->values(layer.w13) + expert * 2 * width * hidden_size_,
                  rank->values(layer.w2) + expert * hidden_size_ * width, width, input,
                  config_.norm_topk_prob ? scores[expert] / total : scores[expert], partial_.data() + t * hidden_size_);
      }
    }
    AddPartial();
  }
  AddSum();
}

void Layers::RunExpert(const std::uint16_t* w13, const std::uint16_t* w2, std::size_t width, const float* input,
                       float weight, float* output) {
  fused_.resize(2 * width);
  mixed_.resize(width + hidden_size_);
  multiplier_.Multiply(w13, 2 * width, hidden_size_, input, 1, fused_.data());
  Activate(fused_.data(), width, mixed_.data());
  multiplier_.Multiply(w2, hidden_size_, width, mixed_.data(), 1, mixed_.data() + width);
  AddScaled(multiplier_.arithmetic(), weight, mixed_.data() + width, hidden_size_, output);
}

void Layers::Head(std::span<const float> hidden, std::vector<float>& logits) {
  const std::size_t rows = RowCount(*ranks_.front(), head_);
  logits.resize(rows * ranks_.size());
  std::vector<float> normed(hidden_size_);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Norm(ranks_[r]->values(last_norm_), hidden.data(), hidden_size_, normed.data());
    multiplier_.Multiply(ranks_[r]->values(head_), rows, hidden_size_, normed.data(), 1, logits.data() + r * rows);
  }
}

}  // namespace refit::engine::reference
