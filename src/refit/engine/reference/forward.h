// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Llama, Qwen3 and Qwen3-MoE on the CPU, over the TP ranks' shards: each rank computes its partial result, and the
// partial results are summed in rank order, as an all-reduce would. bfloat16 weights, float32 everything else.
// Parameters are read live: an update between two tokens shows in the next one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "refit/base/status.h"
#include "refit/engine/reference/model.h"
#include "refit/engine/reference/sampler.h"

namespace refit::engine::reference {

using TokenId = std::int32_t;

enum class FinishReason : std::uint8_t { kLength, kStopToken, kStopped };  // kStopped: keep_going said so

struct GenerateOptions {
  std::uint32_t max_new_tokens = 16;
  SamplingOptions sampling;
  std::vector<TokenId> stop_tokens;  // the last token delivered; none: only the length ends it
};

// Keys and values of one rank's heads in one layer: positions x kv heads x head size.
struct LayerCache {
  std::vector<float> keys;
  std::vector<float> values;
};

// Of the positions seen so far, of every layer and rank. Computed with the weights of their time: an engine that
// flushes its cache begins a new one.
class KvCache {
 public:
  std::size_t position_count() const { return position_count_; }
  void Clear() { position_count_ = 0; }

 private:
  friend class Generator;
  std::size_t position_count_ = 0;
  std::vector<std::vector<LayerCache>> layers_;  // [layer][rank]
};

// Thread: one generation at a time per Generator. Several Generators may share ranks.
class Generator {
 public:
  // All ranks of one engine, in rank order; they outlive the generator. thread_count: 1 or more.
  static Result<std::unique_ptr<Generator>> Make(std::vector<const RankModel*> ranks, std::size_t thread_count = 1);
  ~Generator();

  // Calls keep_going with each new token, right after it was chosen; false ends the generation before the next one.
  // Parameters may change inside keep_going, and nowhere else during a generation.
  // Fails on an empty prompt, a token outside the vocabulary, more positions than the model has, released weights.
  Result<FinishReason> Generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                const std::function<bool(TokenId)>& keep_going);

  // Appends tokens to the cache; logits of the last one, valid until the next call.
  Result<std::span<const float>> Forward(KvCache& cache, std::span<const TokenId> tokens);

  // Mean negative log likelihood of tokens 1… given those before them. Its exponential is the perplexity.
  Result<double> NegativeLogLikelihood(std::span<const TokenId> tokens);

 private:
  struct Impl;
  explicit Generator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace refit::engine::reference
