// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// The layout against a twin that does to small matrices what SGLang's loaders do: cut, then concatenate.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/weights/shard_layout.h"

namespace refit::weights {
namespace {

constexpr int kModels = 300;

using Row = std::vector<std::int64_t>;
using Matrix = std::vector<Row>;

// Every element of every source tensor is a number of its own.
std::map<std::string, Matrix> MakeSources(const Manifest& manifest) {
  std::map<std::string, Matrix> sources;
  std::int64_t next = 0;
  for (const TensorSpec& spec : manifest.tensors()) {
    const std::int64_t columns = spec.shape.size() == 1 ? 1 : spec.shape[1];
    Matrix matrix(static_cast<std::size_t>(spec.shape[0]), Row(static_cast<std::size_t>(columns)));
    for (Row& row : matrix) {
      for (std::int64_t& element : row) {
        element = next++;
      }
    }
    sources.emplace(spec.name, std::move(matrix));
  }
  return sources;
}

Matrix Rows(const Matrix& matrix, std::size_t part, std::size_t part_count) {
  const std::size_t count = matrix.size() / part_count;
  const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(part * count);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

Matrix Columns(const Matrix& matrix, std::size_t part, std::size_t part_count) {
  Matrix out;
  for (const Row& row : matrix) {
    const std::size_t count = row.size() / part_count;
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(part * count);
    out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  return out;
}

void Concatenate(Matrix& to, const Matrix& from) { to.insert(to.end(), from.begin(), from.end()); }

std::string Replaced(std::string name, const std::string& what, const std::string& by) {
  return name.replace(name.find(what), what.size(), by);
}

// `expected` of env/sglang/probe.py, with experts and replicated KV heads besides.
std::map<std::string, Matrix> ExpectedParameters(const std::map<std::string, Matrix>& sources,
                                                 const ModelConfig& config, std::size_t rank, std::size_t tp) {
  const auto has = [](const std::string& name, const char* part) { return name.find(part) != std::string::npos; };
  const auto kv_heads = static_cast<std::size_t>(config.kv_head_count);
  const std::size_t kv_parts = tp > kv_heads ? kv_heads : tp;
  const std::size_t kv_part = tp > kv_heads ? rank / (tp / kv_heads) : rank;
  std::map<std::string, Matrix> out;
  for (const auto& [name, matrix] : sources) {
    if (has(name, ".experts.")) {
      const std::string prefix = name.substr(0, name.find("experts."));
      if (has(name, ".experts.0.gate_proj.")) {
        for (std::int64_t e = 0; e < config.expert_count; ++e) {
          const std::string expert = StrCat(prefix, "experts.", e, ".");
          Concatenate(out[prefix + "experts.w13_weight"], Rows(sources.at(expert + "gate_proj.weight"), rank, tp));
          Concatenate(out[prefix + "experts.w13_weight"], Rows(sources.at(expert + "up_proj.weight"), rank, tp));
          Concatenate(out[prefix + "experts.w2_weight"], Columns(sources.at(expert + "down_proj.weight"), rank, tp));
        }
      }
    } else if (has(name, ".q_proj.")) {
      Matrix& fused = out[Replaced(name, "q_proj", "qkv_proj")];
      Concatenate(fused, Rows(matrix, rank, tp));
      Concatenate(fused, Rows(sources.at(Replaced(name, "q_proj", "k_proj")), kv_part, kv_parts));
      Concatenate(fused, Rows(sources.at(Replaced(name, "q_proj", "v_proj")), kv_part, kv_parts));
    } else if (has(name, ".gate_proj.")) {
      Matrix& fused = out[Replaced(name, "gate_proj", "gate_up_proj")];
      Concatenate(fused, Rows(matrix, rank, tp));
      Concatenate(fused, Rows(sources.at(Replaced(name, "gate_proj", "up_proj")), rank, tp));
    } else if (has(name, ".k_proj.") || has(name, ".v_proj.") || has(name, ".up_proj.")) {
      continue;
    } else if (has(name, ".o_proj.") || has(name, ".down_proj.")) {
      out[name] = Columns(matrix, rank, tp);
    } else if (has(name, "embed_tokens") || name == "lm_head.weight") {
      out[name] = Rows(matrix, rank, tp);
    } else {
      out[name] = matrix;
    }
  }
  return out;
}

// What an engine that loads by the layout holds; -1 where nothing lands.
Matrix Materialize(const EngineParameter& parameter, const std::map<std::string, Matrix>& sources) {
  Matrix out(static_cast<std::size_t>(parameter.row_count), Row(static_cast<std::size_t>(parameter.column_count), -1));
  const auto at = [](auto& matrix, std::int64_t row, std::int64_t column) -> auto& {
    return matrix.at(static_cast<std::size_t>(row)).at(static_cast<std::size_t>(column));
  };
  for (const SourceSlice& slice : parameter.slices) {
    EXPECT_EQ(slice.column_count, parameter.column_count);
    const Matrix& source = sources.at(slice.source);
    for (std::int64_t r = 0; r < slice.row_count; ++r) {
      for (std::int64_t c = 0; c < slice.column_count; ++c) {
        std::int64_t& target = at(out, slice.target_row + r, c);
        EXPECT_EQ(target, -1) << "covered twice";
        target = at(source, slice.row_begin + r, slice.column_begin + c);
      }
    }
  }
  return out;
}

ModelConfig RandomConfig(std::mt19937_64& random, std::int64_t tp) {
  const auto pick = [&random](std::uint64_t limit) { return 1 + static_cast<std::int64_t>(random() % limit); };
  ModelConfig config;
  config.architecture = static_cast<Architecture>(random() % 3);
  config.layer_count = pick(12);  // past nine, so that byte order of names is not order of layers
  config.hidden_size = pick(4);
  config.kv_head_count = random() % 2 == 0 || tp == 1 ? tp * pick(2) : (tp % 2 == 0 ? tp / 2 : 1);
  config.head_count = config.kv_head_count * pick(2);
  if (config.head_count % tp != 0) {
    config.head_count = config.kv_head_count * tp;
  }
  config.head_size = 2;
  config.intermediate_size = tp * pick(2);
  config.vocab_size = tp * pick(3);
  config.tie_word_embeddings = random() % 2 == 0;
  config.expert_count = pick(3);
  config.expert_intermediate_size = tp * pick(2);
  config.experts_per_token = 1;
  return config;
}

TEST(ShardLayoutPropTest, EveryRankHoldsWhatSglangsLoadersWouldPutThere) {
  for (std::uint64_t seed = 1; seed <= kModels && !testing::Test::HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const auto tp = 1 + static_cast<std::int64_t>(random() % 4);
    const ModelConfig config = RandomConfig(random, tp);
    const auto sources = MakeSources(ExpectedTensors(config).value());
    for (std::uint32_t rank = 0; rank < tp; ++rank) {
      const EngineLayout layout = MakeSglangLayout(config, {.rank = TpRank(rank), .size = tp}).value();
      const auto expected = ExpectedParameters(sources, config, rank, static_cast<std::size_t>(tp));
      ASSERT_EQ(layout.parameters.size(), expected.size()) << "seed " << seed;
      auto next = expected.begin();  // a map of names: in byte order
      for (const EngineParameter& parameter : layout.parameters) {
        ASSERT_EQ(parameter.name, next->first) << "seed " << seed;
        ASSERT_EQ(Materialize(parameter, sources), next->second) << "seed " << seed << " " << parameter.name;
        std::int64_t elements = 1;
        for (const std::int64_t dimension : parameter.shape) {
          elements *= dimension;
        }
        ASSERT_EQ(elements, parameter.row_count * parameter.column_count);
        ++next;
      }
    }
  }
}

// RC-CFG-18: a size is accepted exactly where every cut is even.
TEST(ShardLayoutPropTest, TpSizesAreAcceptedExactlyWhereEveryCutIsEven) {
  for (std::uint64_t seed = 1; seed <= 5000; ++seed) {
    std::mt19937_64 random(seed);
    ModelConfig config = RandomConfig(random, 1 + static_cast<std::int64_t>(random() % 4));
    const auto tp = 1 + static_cast<std::int64_t>(random() % 6);
    const std::int64_t width =
        config.architecture == Architecture::kQwen3Moe ? config.expert_intermediate_size : config.intermediate_size;
    const bool fits = config.head_count % tp == 0 && config.vocab_size % tp == 0 && width % tp == 0 &&
                      (config.kv_head_count % tp == 0 || tp % config.kv_head_count == 0);
    ASSERT_EQ(CheckTpSize(config, tp).ok(), fits) << "seed " << seed;
    ASSERT_EQ(MakeSglangLayout(config, {.rank = TpRank(0), .size = tp}).ok(), fits) << "seed " << seed;
  }
}

}  // namespace
}  // namespace refit::weights
