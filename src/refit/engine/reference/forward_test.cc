// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "refit/base/str.h"
#include "refit/engine/reference/convert.h"
#include "refit/engine/reference/matmul.h"
#include "refit/engine/reference/model_test_support.h"

namespace refit::engine::reference {
namespace {

using testing::LoadedRanks;
using testing::Pointers;
using testing::RandomTensors;
using testing::SmallConfig;
using testing::Tensors;
using weights::Architecture;

constexpr Architecture kAll[] = {Architecture::kLlama, Architecture::kQwen3, Architecture::kQwen3Moe};

std::vector<TokenId> SomeTokens(std::size_t count) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>((i * 17 + 5) % 60));
  }
  return tokens;
}

std::unique_ptr<Generator> Over(const std::vector<RankModel>& ranks, std::size_t threads = 1) {
  return Generator::Make(Pointers(ranks), threads).value();
}

std::vector<float> Logits(Generator& generator, std::span<const TokenId> tokens) {
  KvCache cache;
  const std::span<const float> logits = generator.Forward(cache, tokens).value();
  return {logits.begin(), logits.end()};
}

std::vector<TokenId> Greedy(Generator& generator, std::span<const TokenId> prompt, std::uint32_t count) {
  std::vector<TokenId> tokens;
  const auto finish =
      generator.Generate(prompt, {.max_new_tokens = count, .sampling = {}, .stop_tokens = {}}, [&](TokenId token) {
        tokens.push_back(token);
        return true;
      });
  EXPECT_EQ(finish.value(), FinishReason::kLength);
  return tokens;
}

TEST(GeneratorTest, EveryTpSizeAgreesWithThePlainComputation) {
  for (const Architecture architecture : kAll) {
    for (const bool is_tied : {true, false}) {
      const weights::ModelConfig config = SmallConfig(architecture, is_tied);
      const Tensors tensors = RandomTensors(config, 11);
      const std::vector<TokenId> tokens = SomeTokens(9);
      const std::vector<double> expected = testing::PlainLogits(config, tensors, tokens);
      for (const std::int64_t tp : {1, 3, 6}) {
        SCOPED_TRACE(StrCat(ToString(architecture), is_tied ? " tied" : "", " TP ", tp));
        const std::vector<RankModel> ranks = LoadedRanks(config, tensors, tp);
        const std::vector<float> logits = Logits(*Over(ranks), tokens);
        ASSERT_EQ(logits.size(), expected.size());
        for (std::size_t i = 0; i < logits.size(); ++i) {
          ASSERT_NEAR(static_cast<double>(logits[i]), expected[i], 2e-4 * (1 + std::abs(expected[i]))) << i;
        }
      }
    }
  }
}

TEST(GeneratorTest, BlocksAndSingleTokensAndThreadsGiveTheSameLogits) {
  const weights::ModelConfig config = SmallConfig(Architecture::kQwen3);
  const std::vector<RankModel> ranks = LoadedRanks(config, RandomTensors(config, 12), 3);
  const std::vector<TokenId> tokens = SomeTokens(71);  // two whole blocks and a rest
  const std::unique_ptr<Generator> generator = Over(ranks);
  const std::vector<float> at_once = Logits(*generator, tokens);
  EXPECT_EQ(Logits(*Over(ranks, 2), tokens), at_once);
  KvCache cache;
  std::vector<float> one_by_one;
  for (const TokenId token : tokens) {
    const std::span<const float> logits = generator->Forward(cache, std::span(&token, 1)).value();
    one_by_one.assign(logits.begin(), logits.end());
  }
  for (std::size_t i = 0; i < at_once.size(); ++i) {
    EXPECT_NEAR(at_once[i], one_by_one[i], 1e-3F);
  }
}

TEST(GeneratorTest, AnUpdateBetweenTokensShowsInTheNextOne) {
  const weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  const Tensors old_tensors = RandomTensors(config, 13);
  const Tensors new_tensors = RandomTensors(config, 14);
  std::vector<RankModel> ranks = LoadedRanks(config, old_tensors, 3);
  const std::vector<TokenId> prompt = SomeTokens(5);
  const std::vector<TokenId> before = Greedy(*Over(ranks), prompt, 12);
  std::vector<TokenId> mixed;
  const auto finish =
      Over(ranks)->Generate(prompt, {.max_new_tokens = 12, .sampling = {}, .stop_tokens = {}}, [&](TokenId token) {
        mixed.push_back(token);
        if (mixed.size() == 4) {
          for (RankModel& rank : ranks) {
            for (const auto& [name, tensor] : new_tensors) {
              EXPECT_EQ(rank.Load(tensor.spec, tensor.bytes()).outcome, LoadOutcome::kInstalled);
            }
          }
        }
        return true;
      });
  EXPECT_EQ(finish.value(), FinishReason::kLength);
  EXPECT_TRUE(std::equal(mixed.begin(), mixed.begin() + 4, before.begin()));
  EXPECT_NE(mixed, before);
}

TEST(GeneratorTest, ATornUpdateOfOneRankShows) {
  const weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  std::vector<RankModel> ranks = LoadedRanks(config, RandomTensors(config, 15), 3);
  const std::vector<float> whole = Logits(*Over(ranks), SomeTokens(6));
  for (const auto& [name, tensor] : RandomTensors(config, 16)) {
    ASSERT_EQ(ranks[1].Load(tensor.spec, tensor.bytes()).outcome, LoadOutcome::kInstalled);
  }
  EXPECT_NE(Logits(*Over(ranks), SomeTokens(6)), whole);
}

TEST(GeneratorTest, EndsAtAStopTokenAtTheLengthOrWhenTold) {
  const weights::ModelConfig config = SmallConfig(Architecture::kQwen3);
  const std::vector<RankModel> ranks = LoadedRanks(config, RandomTensors(config, 17), 1);
  const std::unique_ptr<Generator> generator = Over(ranks);
  const std::vector<TokenId> prompt = SomeTokens(3);
  const std::vector<TokenId> answer = Greedy(*generator, prompt, 6);
  std::vector<TokenId> seen;
  const auto remember = [&](TokenId token) {
    seen.push_back(token);
    return seen.size() < 2;
  };
  const auto stopped = generator->Generate(prompt, {.max_new_tokens = 6, .sampling = {}, .stop_tokens = {}}, remember);
  EXPECT_EQ(stopped.value(), FinishReason::kStopped);
  EXPECT_EQ(seen, std::vector<TokenId>(answer.begin(), answer.begin() + 2));
  const auto ended = generator->Generate(prompt, {.max_new_tokens = 6, .sampling = {}, .stop_tokens = {answer.front()}},
                                         [](TokenId) { return true; });
  EXPECT_EQ(ended.value(), FinishReason::kStopToken);
}

TEST(GeneratorTest, RefusesWhatItCannotCompute) {
  const weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  std::vector<RankModel> ranks = LoadedRanks(config, RandomTensors(config, 18), 3);
  const std::unique_ptr<Generator> generator = Over(ranks);
  KvCache cache;
  const auto code = [&](const std::vector<TokenId>& tokens) {
    return generator->Forward(cache, tokens).status().code();
  };
  EXPECT_EQ(code({}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({60}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({-1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(SomeTokens(129)), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.position_count(), 0U);
  ranks[2].Release();
  EXPECT_EQ(code({1}), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Generator::Make({}).has_value());
  EXPECT_FALSE(Generator::Make({&ranks[1], &ranks[0], &ranks[2]}).has_value());
  EXPECT_FALSE(Generator::Make(Pointers(ranks), 0).has_value());
}

TEST(MultiplierTest, EveryArithmeticGivesThePlainSums) {
  std::mt19937 random(3);
  const auto next = [&] { return static_cast<float>(random() >> 8) * 0x1.0p-23F - 1.0F; };
  for (const std::size_t columns : {1U, 15U, 16U, 48U, 67U}) {
    for (const std::size_t rows : {1U, 5U, 33U}) {
      for (const std::size_t tokens : {1U, 4U, 7U}) {
        std::vector<std::uint16_t> weights(rows * columns);
        std::vector<float> inputs(tokens * columns);
        std::generate(weights.begin(), weights.end(), [&] { return ToBfloat16(next()); });
        std::generate(inputs.begin(), inputs.end(), next);
        for (const Arithmetic arithmetic : {Arithmetic::kScalar, BestArithmetic()}) {
          std::vector<float> outputs(tokens * rows);
          Multiplier(1, arithmetic).Multiply(weights.data(), rows, columns, inputs.data(), tokens, outputs.data());
          for (std::size_t t = 0; t < tokens; ++t) {
            for (std::size_t r = 0; r < rows; ++r) {
              double sum = 0;
              for (std::size_t c = 0; c < columns; ++c) {
                sum += static_cast<double>(FromBfloat16(weights[r * columns + c]) * inputs[t * columns + c]);
              }
              ASSERT_NEAR(static_cast<double>(outputs[t * rows + r]), sum, 1e-4) << columns << " " << rows;
            }
          }
        }
      }
    }
  }
}

TEST(MultiplierTest, ManyThreadsShareTheRowsOfALargeMatrix) {
  constexpr std::size_t kRows = 501;
  constexpr std::size_t kColumns = 304;
  std::vector<std::uint16_t> weights(kRows * kColumns);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = ToBfloat16(static_cast<float>(i % 13) - 6.0F);
  }
  const std::vector<float> inputs(kColumns, 0.5F);
  std::vector<float> one(kRows);
  std::vector<float> three(kRows);
  Multiplier(1).Multiply(weights.data(), kRows, kColumns, inputs.data(), 1, one.data());
  Multiplier multiplier(3);
  for (int round = 0; round < 50; ++round) {
    std::fill(three.begin(), three.end(), 0.0F);
    multiplier.Multiply(weights.data(), kRows, kColumns, inputs.data(), 1, three.data());
    ASSERT_EQ(three, one);
  }
}

TEST(SamplerTest, GreedyTakesTheLowestOfTheBest) { EXPECT_EQ(Sampler({}).Choose(std::vector<float>{1, 3, 2, 3}), 1); }

TEST(SamplerTest, TheSameSeedGivesTheSameTokensAndTheTemperatureItsShares) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(5.0F)};  // 1 : 2 : 5
  Sampler first({.temperature = 1, .top_p = 1, .seed = 9});
  Sampler second({.temperature = 1, .top_p = 1, .seed = 9});
  int counts[3] = {};
  for (int i = 0; i < 8000; ++i) {
    const std::int32_t token = first.Choose(logits);
    ASSERT_EQ(second.Choose(logits), token);
    ++counts[token];
  }
  EXPECT_NEAR(counts[0], 1000, 150);
  EXPECT_NEAR(counts[1], 2000, 200);
  EXPECT_NEAR(counts[2], 5000, 250);
}

TEST(SamplerTest, TopPKeepsOnlyTheTokensThatReachIt) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(5.0F)};
  Sampler narrow({.temperature = 1, .top_p = 0.6, .seed = 1});
  Sampler wide({.temperature = 1, .top_p = 0.8, .seed = 1});
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(narrow.Choose(logits), 2);
    EXPECT_NE(wide.Choose(logits), 0);
  }
}

}  // namespace
}  // namespace refit::engine::reference
