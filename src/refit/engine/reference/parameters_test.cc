// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The loader's semantics, row by row of docs/spec/sglang-wire.md §1.4, and the checker's.

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "refit/base/str.h"
#include "refit/device/hash.h"
#include "refit/engine/reference/convert.h"
#include "refit/engine/reference/model_test_support.h"

namespace refit::engine::reference {
namespace {

using testing::EmptyRank;
using testing::LoadedRanks;
using testing::Pointers;
using testing::RandomTensors;
using testing::SmallConfig;
using testing::Tensor;
using testing::Tensors;
using weights::Architecture;
using weights::DType;

constexpr Architecture kAll[] = {Architecture::kLlama, Architecture::kQwen3, Architecture::kQwen3Moe};

// Rows [begin, begin + count) x columns [column, column + width) of a matrix.
std::vector<std::uint16_t> Cut(const Tensor& tensor, std::size_t begin, std::size_t count, std::size_t column,
                               std::size_t width) {
  const auto columns = static_cast<std::size_t>(tensor.spec.shape[1]);
  std::vector<std::uint16_t> cut;
  for (std::size_t row = begin; row < begin + count; ++row) {
    for (std::size_t i = column; i < column + width; ++i) {
      cut.push_back(tensor.values[row * columns + i]);
    }
  }
  return cut;
}
std::vector<std::uint16_t> RowShare(const Tensor& tensor, std::size_t part, std::size_t parts) {
  const std::size_t rows = static_cast<std::size_t>(tensor.spec.shape[0]) / parts;
  return Cut(tensor, part * rows, rows, 0, static_cast<std::size_t>(tensor.spec.shape[1]));
}
std::vector<std::uint16_t> ColumnShare(const Tensor& tensor, std::size_t part, std::size_t parts) {
  const std::size_t columns = static_cast<std::size_t>(tensor.spec.shape[1]) / parts;
  return Cut(tensor, 0, static_cast<std::size_t>(tensor.spec.shape[0]), part * columns, columns);
}
void Append(std::vector<std::uint16_t>& into, const std::vector<std::uint16_t>& more) {
  into.insert(into.end(), more.begin(), more.end());
}

std::vector<std::uint16_t> Values(const RankModel& rank, std::string_view parameter) {
  const std::size_t index = rank.Find(parameter).value();
  return {rank.values(index), rank.values(index) + rank.bytes(index).size() / 2};
}

template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(RankModelTest, EveryRankHoldsWhatPlainSlicingGives) {
  for (const Architecture architecture : kAll) {
    const weights::ModelConfig config = SmallConfig(architecture);
    const Tensors tensors = RandomTensors(config, 1);
    for (const std::size_t tp : {1U, 3U, 6U}) {
      const std::vector<RankModel> ranks = LoadedRanks(config, tensors, static_cast<std::int64_t>(tp));
      for (std::size_t r = 0; r < tp; ++r) {
        SCOPED_TRACE(StrCat(ToString(architecture), " rank ", r, " of ", tp));
        const std::string attention = "model.layers.1.self_attn.";
        const std::size_t kv_parts = std::min<std::size_t>(tp, 3);
        std::vector<std::uint16_t> qkv = RowShare(tensors.at(attention + "q_proj.weight"), r, tp);
        Append(qkv, RowShare(tensors.at(attention + "k_proj.weight"), r * kv_parts / tp, kv_parts));
        Append(qkv, RowShare(tensors.at(attention + "v_proj.weight"), r * kv_parts / tp, kv_parts));
        EXPECT_EQ(Values(ranks[r], attention + "qkv_proj.weight"), qkv);
        EXPECT_EQ(Values(ranks[r], attention + "o_proj.weight"),
                  ColumnShare(tensors.at(attention + "o_proj.weight"), r, tp));
        EXPECT_EQ(Values(ranks[r], "model.embed_tokens.weight"),
                  RowShare(tensors.at("model.embed_tokens.weight"), r, tp));
        EXPECT_EQ(Values(ranks[r], "model.norm.weight"), tensors.at("model.norm.weight").values);
        const std::string mlp = "model.layers.0.mlp.";
        if (architecture != Architecture::kQwen3Moe) {
          std::vector<std::uint16_t> gate_up = RowShare(tensors.at(mlp + "gate_proj.weight"), r, tp);
          Append(gate_up, RowShare(tensors.at(mlp + "up_proj.weight"), r, tp));
          EXPECT_EQ(Values(ranks[r], mlp + "gate_up_proj.weight"), gate_up);
          continue;
        }
        std::vector<std::uint16_t> w13;
        std::vector<std::uint16_t> w2;
        for (int expert = 0; expert < 5; ++expert) {
          const std::string prefix = StrCat(mlp, "experts.", expert, ".");
          Append(w13, RowShare(tensors.at(prefix + "gate_proj.weight"), r, tp));
          Append(w13, RowShare(tensors.at(prefix + "up_proj.weight"), r, tp));
          Append(w2, ColumnShare(tensors.at(prefix + "down_proj.weight"), r, tp));
        }
        EXPECT_EQ(Values(ranks[r], mlp + "experts.w13_weight"), w13);
        EXPECT_EQ(Values(ranks[r], mlp + "experts.w2_weight"), w2);
      }
    }
  }
}

TEST(RankModelTest, UnknownPlainNamesAndLayersOutsideTheModelAreIgnored) {
  for (const Architecture architecture : kAll) {
    RankModel rank = EmptyRank(SmallConfig(architecture), 0, 1);
    const auto before = rank.Checksums();
    const std::vector<float> one = {1.0F};
    for (const char* name :
         {"nobody.weight", "model.layers.0.self_attn.x.weight", "model.layers.2.input_layernorm.weight",
          "model.layers.2.self_attn.q_proj.weight", "model.layers.99999999999999999999.mlp.up_proj.weight",
          "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.rotary_emb.inv_freq"}) {
      EXPECT_EQ(rank.Load({name, DType::kFloat32, {1}}, BytesOf(one)).outcome, LoadOutcome::kIgnored) << name;
    }
    EXPECT_EQ(rank.Checksums(), before);
  }
}

TEST(RankModelTest, AnUnknownFusedNameInALiveLayerEndsQwen3AsAKeyError) {
  RankModel rank = EmptyRank(SmallConfig(Architecture::kQwen3), 0, 1);
  const std::vector<float> one = {1.0F};
  const auto message = [&](const char* name) { return rank.Load({name, DType::kFloat32, {1}}, BytesOf(one)).message; };
  EXPECT_EQ(message("model.layers.0.self_attn.q_proj.scales"), "KeyError: 'model.layers.0.self_attn.qkv_proj.scales'");
  EXPECT_EQ(message("model.layers.1.self_attn.qkv_proj.weight"),
            "KeyError: 'model.layers.1.self_attn.qkqkv_proj.weight'");
  EXPECT_EQ(message("x.mlp.up_proj.weight"), "KeyError: 'x.mlp.gate_up_proj.weight'");
  RankModel llama = EmptyRank(SmallConfig(Architecture::kLlama), 0, 1);
  EXPECT_EQ(llama.Load({"model.layers.0.self_attn.q_proj.scales", DType::kFloat32, {1}}, BytesOf(one)).outcome,
            LoadOutcome::kIgnored);
}

TEST(RankModelTest, LlamaTakesAFusedTensorAndQwen3ANameWithoutModel) {
  const weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  const Tensors tensors = RandomTensors(config, 2);
  const std::string attention = "model.layers.0.self_attn.";
  std::vector<std::uint16_t> fused = tensors.at(attention + "q_proj.weight").values;
  Append(fused, tensors.at(attention + "k_proj.weight").values);
  Append(fused, tensors.at(attention + "v_proj.weight").values);
  RankModel rank = EmptyRank(config, 2, 3);
  const weights::TensorSpec spec = {attention + "qkv_proj.weight", DType::kBfloat16, {48 + 24 + 24, 48}};
  EXPECT_EQ(rank.Load(spec, BytesOf(fused)).outcome, LoadOutcome::kInstalled);
  EXPECT_EQ(Values(rank, spec.name), Values(LoadedRanks(config, tensors, 3)[2], spec.name));

  RankModel qwen = EmptyRank(SmallConfig(Architecture::kQwen3), 0, 1);
  const std::vector<float> ones(48, 1.0F);
  EXPECT_EQ(qwen.Load({"norm.weight", DType::kFloat32, {48}}, BytesOf(ones)).outcome, LoadOutcome::kInstalled);
  EXPECT_EQ(Values(qwen, "model.norm.weight"), std::vector<std::uint16_t>(48, 0x3F80));
}

TEST(RankModelTest, OtherElementTypesAreConverted) {
  RankModel rank = EmptyRank(SmallConfig(Architecture::kQwen3), 0, 1);
  const auto load = [&](DType dtype, Bytes bytes) {
    EXPECT_EQ(rank.Load({"model.norm.weight", dtype, {48}}, bytes).outcome, LoadOutcome::kInstalled);
    return FromBfloat16(Values(rank, "model.norm.weight").front());
  };
  EXPECT_EQ(load(DType::kFloat32, BytesOf(std::vector<float>(48, -2.5F))), -2.5F);
  EXPECT_EQ(load(DType::kFloat16, BytesOf(std::vector<std::uint16_t>(48, 0x3E00))), 1.5F);
  EXPECT_EQ(load(DType::kInt32, BytesOf(std::vector<std::int32_t>(48, -7))), -7.0F);
  EXPECT_EQ(load(DType::kFloat64, BytesOf(std::vector<double>(48, 0.25))), 0.25F);
  EXPECT_EQ(load(DType::kFloat8E4m3, BytesOf(std::vector<std::uint8_t>(48, 0x3C))), 1.5F);
  EXPECT_EQ(load(DType::kFloat8E5m2, BytesOf(std::vector<std::uint8_t>(48, 0xC0))), -2.0F);
}

TEST(ConvertTest, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x3F808000U)), 0x3F80);  // a tie, even below
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x3F818000U)), 0x3F82);  // a tie, even above
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x7F800000U)), 0x7F80);  // infinity
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x7F800001U)), 0x7FC0);  // NaN stays one
}

TEST(RankModelTest, ShardedLinearsCutWhatIsTooMuchAndPadWhatIsTooShort) {
  const weights::ModelConfig config = SmallConfig(Architecture::kQwen3);
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const std::string fused = "model.layers.0.self_attn.qkv_proj.weight";
  const auto filled = [](std::size_t count) { return std::vector<std::uint16_t>(count, 0x3F80); };
  for (const std::int64_t rows : {50, 40, 20}) {  // of 48; rank 2 of 3 wants rows 32 to 47
    RankModel rank = EmptyRank(config, 2, 3);
    rank.FillRandom(1);
    const std::vector<std::uint16_t> tensor = filled(static_cast<std::size_t>(rows) * 48);
    ASSERT_EQ(rank.Load({q, DType::kBfloat16, {rows, 48}}, BytesOf(tensor)).outcome, LoadOutcome::kInstalled);
    const std::size_t have = rows >= 48 ? 16 : rows > 32 ? static_cast<std::size_t>(rows - 32) : 0;
    std::vector<std::uint16_t> expected = filled(have * 48);
    expected.resize(16U * 48U);
    std::vector<std::uint16_t> values = Values(rank, fused);
    values.resize(expected.size());
    EXPECT_EQ(values, expected) << rows;
  }
  const std::string o = "model.layers.0.self_attn.o_proj.weight";
  RankModel rank = EmptyRank(config, 1, 3);
  rank.FillRandom(1);
  const std::vector<std::uint16_t> tensor = filled(48U * 20U);  // rank 1 wants columns 16 to 31
  ASSERT_EQ(rank.Load({o, DType::kBfloat16, {48, 20}}, BytesOf(tensor)).outcome, LoadOutcome::kInstalled);
  std::vector<std::uint16_t> expected;
  for (int row = 0; row < 48; ++row) {
    Append(expected, filled(4));
    Append(expected, std::vector<std::uint16_t>(12, 0));
  }
  EXPECT_EQ(Values(rank, o), expected);
}

TEST(RankModelTest, AWrongShapeElsewhereIsTheLoadersAssertion) {
  RankModel rank = EmptyRank(SmallConfig(Architecture::kQwen3), 0, 1);
  const std::vector<std::uint16_t> tensor(100U * 100U);
  const auto load = [&](const char* name, const weights::Shape& shape) {
    ByteCount size = 2;
    for (const std::int64_t dimension : shape) {
      size *= static_cast<ByteCount>(dimension);
    }
    return rank.Load({name, DType::kBfloat16, shape}, BytesOf(tensor).first(size));
  };
  EXPECT_EQ(load("model.norm.weight", {47}).message,
            "AssertionError: Attempted to load weight (torch.Size([47])) into parameter (torch.Size([48]))");
  EXPECT_EQ(load("model.embed_tokens.weight", {61, 48}).outcome, LoadOutcome::kFatal);
  EXPECT_EQ(load("model.layers.0.self_attn.q_proj.weight", {48, 50}).outcome, LoadOutcome::kFatal);
  EXPECT_EQ(load("model.layers.0.self_attn.o_proj.weight", {50, 48}).outcome, LoadOutcome::kFatal);
  EXPECT_EQ(load("model.layers.0.mlp.up_proj.weight", {72}).outcome, LoadOutcome::kFatal);
  EXPECT_EQ(rank.Load({"model.norm.weight", DType::kBfloat16, {48}}, BytesOf(tensor).first(95)).outcome,
            LoadOutcome::kFatal);
}

TEST(RankModelTest, ATiedModelIgnoresItsHeadAndAnUntiedOneInstallsIt) {
  const std::vector<std::uint16_t> head(60U * 48U, 0x3F80);
  const weights::TensorSpec spec = {"lm_head.weight", DType::kBfloat16, {60, 48}};
  for (const Architecture architecture : kAll) {
    RankModel tied = EmptyRank(SmallConfig(architecture), 0, 1);
    EXPECT_EQ(tied.Load(spec, BytesOf(head)).outcome, LoadOutcome::kIgnored);
    RankModel untied = EmptyRank(SmallConfig(architecture, false), 0, 1);
    EXPECT_EQ(untied.Load(spec, BytesOf(head)).outcome, LoadOutcome::kInstalled);
    EXPECT_EQ(Values(untied, "lm_head.weight"), head);
  }
}

TEST(RankModelTest, AModelOfAnotherElementTypeOrATpThatDoesNotDivideIsRefused) {
  weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  EXPECT_FALSE(RankModel::Make(config, {TpRank(0), 4}).has_value());
  config.dtype = DType::kFloat32;
  EXPECT_EQ(RankModel::Make(config, {TpRank(0), 1}).status().code(), StatusCode::kInvalidArgument);
}

TEST(WeightsCheckerTest, AChecksumIsTheStartOfTheBytesSha256) {
  const RankModel rank = EmptyRank(SmallConfig(Architecture::kLlama), 0, 3);
  const auto checksums = rank.Checksums();
  EXPECT_EQ(checksums.size(), rank.parameters().size());
  EXPECT_EQ(checksums.at("model.norm.weight"),
            device::Sha256Hex(BytesOf(std::vector<std::uint16_t>(48, 0))).substr(0, 16));
}

// RC-PROOF-03: checksum, reset_tensors, checksum must differ everywhere, and only the full set brings it back.
TEST(WeightsCheckerTest, ResetChangesEveryParameterAndTheFullSetBringsThemBack) {
  const weights::ModelConfig config = SmallConfig(Architecture::kQwen3Moe);
  const Tensors tensors = RandomTensors(config, 3);
  std::vector<RankModel> ranks = LoadedRanks(config, tensors, 3);
  for (RankModel& rank : ranks) {
    EXPECT_EQ(rank.Compare().code(), StatusCode::kFailedPrecondition);
    const auto before = rank.Checksums();
    rank.Snapshot();
    EXPECT_TRUE(rank.Compare().ok());
    rank.ResetTensors(7);
    const auto after = rank.Checksums();
    for (const auto& [name, checksum] : before) {
      EXPECT_NE(after.at(name), checksum) << name;
    }
    EXPECT_EQ(rank.Compare().code(), StatusCode::kDataLoss);
    for (const auto& [name, tensor] : tensors) {
      ASSERT_EQ(rank.Load(tensor.spec, tensor.bytes()).outcome, LoadOutcome::kInstalled);
    }
    EXPECT_TRUE(rank.Compare().ok());
    EXPECT_EQ(rank.Checksums(), before);
    rank.DropSnapshot();
    EXPECT_FALSE(rank.has_snapshot());
  }
}

TEST(RankModelTest, RandomWeightsDoNotDependOnTheTpSize) {
  const weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  std::vector<RankModel> whole;
  whole.push_back(EmptyRank(config, 0, 1));
  whole.front().FillRandom(5);
  std::vector<RankModel> split;
  for (std::uint32_t r = 0; r < 3; ++r) {
    split.push_back(EmptyRank(config, r, 3));
    split.back().FillRandom(5);
  }
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "model.layers.1.self_attn.v_proj.weight",
                           "model.layers.0.mlp.down_proj.weight", "lm_head.weight"}) {
    const auto one = RankModel::RowsByHfName(Pointers(whole), name, 1000).value();
    const auto three = RankModel::RowsByHfName(Pointers(split), name, 1000).value();
    EXPECT_EQ(one.rows, three.rows) << name;
    EXPECT_EQ(one.shape, three.shape) << name;
  }
  EXPECT_EQ(RankModel::RowsByHfName(Pointers(split), "model.norm.weight", 4).value().rows.size(), 4U);
  EXPECT_EQ(RankModel::RowsByHfName(Pointers(split), "nobody", 4).status().code(), StatusCode::kNotFound);
}

TEST(RankModelTest, ReleasedWeightsAreLostAndNothingCanBeLoadedMeanwhile) {
  const weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  const Tensors tensors = RandomTensors(config, 4);
  std::vector<RankModel> ranks = LoadedRanks(config, tensors, 1);
  RankModel& rank = ranks.front();
  rank.Release();
  const Tensor& norm = tensors.at("model.norm.weight");
  EXPECT_EQ(rank.Load(norm.spec, norm.bytes()).outcome, LoadOutcome::kFatal);
  EXPECT_TRUE(rank.Checksums().empty());
  EXPECT_FALSE(RankModel::RowsByHfName(Pointers(ranks), "model.norm.weight", 1).has_value());
  rank.Resume();
  EXPECT_EQ(Values(rank, "model.norm.weight"), std::vector<std::uint16_t>(48, 0));
  EXPECT_EQ(rank.Load(norm.spec, norm.bytes()).outcome, LoadOutcome::kInstalled);
}

}  // namespace
}  // namespace refit::engine::reference
