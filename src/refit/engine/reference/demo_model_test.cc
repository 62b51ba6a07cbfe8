// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The demo's language model, where REFIT_DEMO_MODEL names its folder. Tokens and figures are those of transformers in
// float32 on the same checkpoint (its bfloat16 run has the perplexity 5.78).

#include <gtest/gtest.h>

#include <cstdlib>

#include "refit/checkpoint/checkpoint.h"
#include "refit/engine/reference/forward.h"
#include "refit/engine/reference/model_test_support.h"

namespace refit::engine::reference {
namespace {

// ChatML: a system turn, "What is the capital of France?", the assistant's turn begun.
const std::vector<TokenId> kQuestion = {1,   9690, 198, 2683, 359,   253,  5356, 5646, 11173, 3365, 3511, 308,  34519,
                                        28,  7018, 411, 407,  19712, 8182, 2,    198,  1,     4093, 198,  1780, 314,
                                        260, 3575, 282, 4649, 47,    2,    198,  1,    520,   9531, 198};
const std::vector<TokenId> kAnswer = {504, 3575, 282, 4649, 314, 7042, 30, 2};  // "The capital of France is Paris."
const std::vector<TokenId> kEiffelTower = {504,  414, 46682, 18669, 314, 253, 34554, 29,  1009,  27672, 11637, 281,
                                           7042, 28,  4649,  30,    657, 436, 8020,  429, 216,   33,    40,    40,
                                           39,   288, 216,   33,    40,  40,  41,    347, 260,   3712,  12441, 282,
                                           260,  216, 33,    40,    40,  41,  2260,  506, 11285, 30};

class DemoModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("REFIT_DEMO_MODEL");
    if (folder == nullptr || *folder == '\0') {
      GTEST_SKIP() << "REFIT_DEMO_MODEL does not name the demo model's folder";
    }
    folder_ = folder;
  }
  std::vector<RankModel> Load(std::uint32_t tp_size) const {
    const weights::ModelConfig config = checkpoint::ReadModelConfig(folder_).value();
    const std::unique_ptr<checkpoint::Checkpoint> checkpoint = checkpoint::Checkpoint::Open(folder_).value();
    std::vector<RankModel> ranks;
    for (std::uint32_t rank = 0; rank < tp_size; ++rank) {
      ranks.push_back(testing::EmptyRank(config, rank, tp_size));
      const Status loaded = ranks.back().LoadFromCheckpoint(*checkpoint);
      EXPECT_TRUE(loaded.ok()) << loaded.ToString();
    }
    return ranks;
  }
  std::string folder_;
};

TEST_F(DemoModelTest, ItKnowsTheCapitalOfFranceAndTheEiffelTowerWithAnyTpSize) {
  for (const std::uint32_t tp_size : {1U, 3U}) {
    const std::vector<RankModel> ranks = Load(tp_size);
    const std::unique_ptr<Generator> generator = Generator::Make(testing::Pointers(ranks)).value();
    std::vector<TokenId> answer;
    const auto finish =
        generator->Generate(kQuestion, {.max_new_tokens = 20, .sampling = {}, .stop_tokens = {2}}, [&](TokenId token) {
          answer.push_back(token);
          return true;
        });
    EXPECT_EQ(finish.value(), FinishReason::kStopToken);
    EXPECT_EQ(answer, kAnswer) << "TP " << tp_size;
    EXPECT_NEAR(generator->NegativeLogLikelihood(kEiffelTower).value(), 1.76369, 1e-4) << "TP " << tp_size;
  }
}

}  // namespace
}  // namespace refit::engine::reference
