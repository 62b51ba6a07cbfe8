// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/forward.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "refit/base/str.h"
#include "refit/engine/reference/forward_layers.h"

namespace refit::engine::reference {
namespace {

constexpr std::size_t kBlock = 32;  // tokens that pass the weights together

double NegativeLogProbability(std::span<const float> logits, TokenId token) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) {
    total += std::exp(static_cast<double>(logit - top));
  }
  return std::log(total) - static_cast<double>(logits[static_cast<std::size_t>(token)] - top);
}

}  // namespace

struct Generator::Impl {
  Impl(std::vector<const RankModel*> ranks, std::size_t thread_count) : layers(std::move(ranks), thread_count) {}

  Layers layers;
  std::vector<float> logits;

  Status Check(const KvCache& cache, std::span<const TokenId> tokens) const;
  void Prepare(KvCache& cache) const;
};

Generator::Generator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generator::~Generator() = default;

Result<std::unique_ptr<Generator>> Generator::Make(std::vector<const RankModel*> ranks, std::size_t thread_count) {
  if (ranks.empty() || thread_count == 0) {
    return InvalidArgument(StrCat("a generator of ", ranks.size(), " ranks and ", thread_count, " threads"),
                           "give every rank of one engine, and one thread or more");
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const weights::TpShard shard = ranks[i]->shard();
    if (shard.rank.value() != i || shard.size != static_cast<std::int64_t>(ranks.size())) {
      return InvalidArgument(StrCat("rank ", i, " of ", ranks.size(), " is shard ", shard.rank, " of ", shard.size),
                             "give the ranks of one engine in rank order");
    }
  }
  return std::unique_ptr<Generator>(new Generator(std::make_unique<Impl>(std::move(ranks), thread_count)));
}

Status Generator::Impl::Check(const KvCache& cache, std::span<const TokenId> tokens) const {
  const weights::ModelConfig& config = layers.config();
  if (tokens.empty()) {
    return InvalidArgument("the prompt has no tokens", "send at least one token");
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= config.vocab_size) {
      return InvalidArgument(StrCat("token ", token, " is outside the vocabulary of ", config.vocab_size),
                             "tokenise with this model's tokenizer.json");
    }
  }
  const std::size_t positions = cache.position_count_ + tokens.size();
  if (positions > static_cast<std::size_t>(config.max_position_count)) {
    return InvalidArgument(StrCat(positions, " positions, the model has ", config.max_position_count),
                           "send a shorter prompt or ask for fewer tokens");
  }
  for (std::size_t i = 0; i < layers.rank_count(); ++i) {
    if (layers.rank(i).released()) {
      return FailedPrecondition(StrCat("the weights of rank ", i, " are released"), "resume them first");
    }
  }
  return OkStatus();
}

void Generator::Impl::Prepare(KvCache& cache) const {
  const auto layer_count = static_cast<std::size_t>(layers.config().layer_count);
  cache.layers_.resize(layer_count);
  for (std::vector<LayerCache>& layer : cache.layers_) {
    layer.resize(layers.rank_count());
    if (cache.position_count_ == 0) {
      for (LayerCache& rank : layer) {
        rank.keys.clear();
        rank.values.clear();
      }
    }
  }
}

Result<std::span<const float>> Generator::Forward(KvCache& cache, std::span<const TokenId> tokens) {
  REFIT_RETURN_IF_ERROR(impl_->Check(cache, tokens));
  impl_->Prepare(cache);
  std::size_t last_size = 0;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kBlock) {
    last_size = std::min(kBlock, tokens.size() - begin);
    impl_->layers.Run(tokens.subspan(begin, last_size), cache.position_count_, cache.layers_);
    cache.position_count_ += last_size;
  }
  impl_->layers.Head(impl_->layers.hidden(last_size - 1), impl_->logits);
  return std::span<const float>(impl_->logits);
}

Result<FinishReason> Generator::Generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                         const std::function<bool(TokenId)>& keep_going) {
  KvCache cache;
  Sampler sampler(options.sampling);
  std::vector<TokenId> next(prompt.begin(), prompt.end());
  for (std::uint32_t count = 0; count < options.max_new_tokens; ++count) {
    REFIT_ASSIGN_OR_RETURN(const std::span<const float> logits, Forward(cache, next));
    const TokenId token = sampler.Choose(logits);
    if (!keep_going(token)) {
      return FinishReason::kStopped;
    }
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end()) {
      return FinishReason::kStopToken;
    }
    next.assign(1, token);
  }
  return FinishReason::kLength;
}

Result<double> Generator::NegativeLogLikelihood(std::span<const TokenId> tokens) {
  KvCache cache;
  REFIT_RETURN_IF_ERROR(impl_->Check(cache, tokens));
  if (tokens.size() < 2) {
    return InvalidArgument("a likelihood needs two tokens or more");
  }
  impl_->Prepare(cache);
  double sum = 0;
  for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, tokens.size() - 1 - begin);
    impl_->layers.Run(tokens.subspan(begin, size), begin, cache.layers_);
    cache.position_count_ += size;
    for (std::size_t i = 0; i < size; ++i) {
      impl_->layers.Head(impl_->layers.hidden(i), impl_->logits);
      sum += NegativeLogProbability(impl_->logits, tokens[begin + i + 1]);
    }
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

}  // namespace refit::engine::reference
