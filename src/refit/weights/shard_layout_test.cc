// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/shard_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/model_shapes.h"

namespace refit::weights {
namespace {

EngineLayout LayoutOf(const ModelConfig& config, std::uint32_t rank, std::int64_t size) {
  return MakeSglangLayout(config, {.rank = TpRank(rank), .size = size}).value();
}

const EngineParameter& Parameter(const EngineLayout& layout, const std::string& name) {
  const auto found = std::find_if(layout.parameters.begin(), layout.parameters.end(),
                                  [&name](const EngineParameter& parameter) { return parameter.name == name; });
  REFIT_CHECK(found != layout.parameters.end(), name.c_str());
  return *found;
}

bool Has(const EngineLayout& layout, const std::string& name) {
  return std::any_of(layout.parameters.begin(), layout.parameters.end(),
                     [&name](const EngineParameter& parameter) { return parameter.name == name; });
}

TEST(SglangLayoutTest, Qwen3HasTheParametersThatARealServerLists) {
  const EngineLayout layout = LayoutOf(test::Qwen3Small(), 0, 1);
  EXPECT_EQ(layout.parameters.size(), 226u);
  EXPECT_TRUE(std::is_sorted(layout.parameters.begin(), layout.parameters.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  EXPECT_FALSE(Has(layout, "lm_head.weight"));
  std::int64_t elements = 0;
  for (const EngineParameter& parameter : layout.parameters) {
    elements += parameter.row_count * parameter.column_count;
  }
  EXPECT_EQ(elements * 2, 1'192'099'840);
  ModelConfig untied = test::Qwen3Small();
  untied.tie_word_embeddings = false;
  EXPECT_EQ(Parameter(LayoutOf(untied, 1, 2), "lm_head.weight").slices[0].row_begin, 151936 / 2);
}

TEST(SglangLayoutTest, FusesQkvByRowsOfTheRank) {
  const EngineLayout layout = LayoutOf(test::LlamaSmall(), 2, 3);
  const EngineParameter& qkv = Parameter(layout, "model.layers.7.self_attn.qkv_proj.weight");
  const std::string prefix = "model.layers.7.self_attn.";
  EXPECT_EQ(qkv.shape, (Shape{192 + 64 + 64, 576}));
  EXPECT_EQ(qkv.slices, (std::vector<SourceSlice>{{prefix + "q_proj.weight", 384, 192, 0, 576, 0},
                                                  {prefix + "k_proj.weight", 128, 64, 0, 576, 192},
                                                  {prefix + "v_proj.weight", 128, 64, 0, 576, 256}}));
  EXPECT_FALSE(Has(layout, prefix + "q_norm.weight"));
}

TEST(SglangLayoutTest, CutsOutputProjectionsByColumns) {
  const EngineLayout layout = LayoutOf(test::LlamaSmall(), 1, 3);
  const EngineParameter& o = Parameter(layout, "model.layers.0.self_attn.o_proj.weight");
  EXPECT_EQ(o.shape, (Shape{576, 192}));
  EXPECT_EQ(o.slices, (std::vector<SourceSlice>{{o.name, 0, 576, 192, 192, 0}}));
  const EngineParameter& down = Parameter(layout, "model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(down.slices, (std::vector<SourceSlice>{{down.name, 0, 576, 512, 512, 0}}));
  const EngineParameter& gate_up = Parameter(layout, "model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(gate_up.shape, (Shape{1024, 576}));
  EXPECT_EQ(gate_up.slices[1], (SourceSlice{"model.layers.0.mlp.up_proj.weight", 512, 512, 0, 576, 512}));
  const EngineParameter& norm = Parameter(layout, "model.norm.weight");
  EXPECT_EQ(norm.shape, (Shape{576}));
  EXPECT_EQ(norm.slices, (std::vector<SourceSlice>{{norm.name, 0, 576, 0, 1, 0}}));
}

TEST(SglangLayoutTest, NeighboursShareAKvHeadWhereThereAreMoreRanksThanHeads) {  // RC-CFG-18
  for (std::uint32_t rank = 0; rank < 16; ++rank) {
    const EngineLayout layout = LayoutOf(test::Qwen3Small(), rank, 16);
    const EngineParameter& qkv = Parameter(layout, "model.layers.0.self_attn.qkv_proj.weight");
    EXPECT_EQ(qkv.row_count, 3 * 128);
    EXPECT_EQ(qkv.slices[1].row_begin, 128 * (rank / 2));
    EXPECT_EQ(qkv.slices[2].row_begin, 128 * (rank / 2));
  }
}

TEST(SglangLayoutTest, StacksExperts) {
  const EngineLayout layout = LayoutOf(test::MoeLarge(), 1, 2);
  const std::string prefix = "model.layers.3.mlp.";
  const EngineParameter& w13 = Parameter(layout, prefix + "experts.w13_weight");
  EXPECT_EQ(w13.shape, (Shape{128, 128, 256}));
  EXPECT_EQ(w13.row_count, 128 * 128);
  EXPECT_EQ(w13.slices[2 * 5], (SourceSlice{prefix + "experts.5.gate_proj.weight", 64, 64, 0, 256, 5 * 128}));
  EXPECT_EQ(w13.slices[2 * 5 + 1], (SourceSlice{prefix + "experts.5.up_proj.weight", 64, 64, 0, 256, 5 * 128 + 64}));
  const EngineParameter& w2 = Parameter(layout, prefix + "experts.w2_weight");
  EXPECT_EQ(w2.shape, (Shape{128, 256, 64}));
  EXPECT_EQ(w2.slices[9], (SourceSlice{prefix + "experts.9.down_proj.weight", 0, 256, 64, 64, 9 * 256}));
  EXPECT_EQ(Parameter(layout, prefix + "gate.weight").shape, (Shape{128, 256}));
}

TEST(SglangLayoutTest, RefusesSizesThatDoNotFitAndRanksThatDoNotExist) {  // RC-CFG-18
  EXPECT_FALSE(MakeSglangLayout(test::LlamaSmall(), {.rank = TpRank(0), .size = 2}).ok());
  EXPECT_FALSE(MakeSglangLayout(test::LlamaSmall(), {.rank = TpRank(3), .size = 3}).ok());
}

}  // namespace
}  // namespace refit::weights
