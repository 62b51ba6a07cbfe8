// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The layers behind Generator, over a block of tokens at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "refit/engine/reference/forward.h"
#include "refit/engine/reference/matmul.h"
#include "refit/engine/reference/model.h"

namespace refit::engine::reference {

// Indices of one layer's parameters; the same on every rank.
struct LayerParameters {
  std::size_t input_norm = 0;
  std::size_t qkv = 0;
  std::size_t q_norm = 0;  // Qwen3 only
  std::size_t k_norm = 0;
  std::size_t o = 0;
  std::size_t post_norm = 0;
  std::size_t gate_up = 0;  // dense
  std::size_t down = 0;
  std::size_t router = 0;  // sparse
  std::size_t w13 = 0;
  std::size_t w2 = 0;
};

class Layers {
 public:
  Layers(std::vector<const RankModel*> ranks, std::size_t thread_count);

  const weights::ModelConfig& config() const { return config_; }
  const RankModel& rank(std::size_t index) const { return *ranks_[index]; }
  std::size_t rank_count() const { return ranks_.size(); }

  // Runs a block of tokens at positions first… through every layer, and appends to the cache ([layer][rank]).
  // Leaves the final hidden states (before the last norm) in hidden().
  void Run(std::span<const TokenId> tokens, std::size_t first, std::vector<std::vector<LayerCache>>& cache);
  std::span<const float> hidden(std::size_t token) const {
    return {hidden_.data() + token * hidden_size_, hidden_size_};
  }
  // Logits over the whole vocabulary, joined from the ranks.
  void Head(std::span<const float> hidden, std::vector<float>& logits);

 private:
  void Embed(std::span<const TokenId> tokens);
  void PrepareRotation(std::size_t first, std::size_t count);
  void Attend(const LayerParameters& layer, std::size_t first, std::vector<LayerCache>& cache);
  void AppendToCache(const RankModel& rank, const LayerParameters& layer, LayerCache& cache);
  void AttendOnRank(std::size_t first, const LayerCache& cache);
  void Dense(const LayerParameters& layer);
  void Sparse(const LayerParameters& layer);
  void RunExpert(const std::uint16_t* w13, const std::uint16_t* w2, std::size_t width, const float* input, float weight,
                 float* output);
  void Rotate(std::size_t token, float* head) const;
  void Norm(const std::uint16_t* weights, const float* from, std::size_t count, float* into) const;  // in place too
  void NormTokens(const std::uint16_t* weights);  // hidden_ -> normed_
  void AddPartial();                              // sum_ += partial_
  void AddSum();                                  // hidden_ += sum_, as after an all-reduce; sum_ is zero again

  std::vector<const RankModel*> ranks_;
  weights::ModelConfig config_;
  std::size_t hidden_size_;
  std::size_t head_size_;
  std::size_t heads_;     // per rank
  std::size_t kv_heads_;  // per rank
  bool is_sparse_;
  std::vector<LayerParameters> layers_;
  std::size_t embedding_ = 0;
  std::size_t last_norm_ = 0;
  std::size_t head_ = 0;
  Multiplier multiplier_;

  std::size_t token_count_ = 0;  // of the block
  std::vector<float> hidden_;    // tokens x hidden size
  std::vector<float> sum_;       // of the ranks' partial results, before it joins hidden_
  std::vector<float> normed_;
  std::vector<float> partial_;
  std::vector<float> fused_;  // qkv, or gate and up
  std::vector<float> mixed_;  // attention's or the activation's output
  std::vector<float> scores_;
  std::vector<float> cosines_;  // tokens x head size / 2
  std::vector<float> sines_;
};

}  // namespace refit::engine::reference
