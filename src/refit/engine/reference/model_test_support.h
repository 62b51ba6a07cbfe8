// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Small models for the tests of this folder, and the slow, plain way to compute what they must hold and say.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "refit/engine/reference/model.h"

namespace refit::engine::reference::testing {

// 2 layers, hidden 48, 6 heads of 8, 3 KV heads, vocabulary 60: TP 1 and 3 divide it; TP 6 replicates KV heads.
weights::ModelConfig SmallConfig(weights::Architecture architecture, bool is_tied = true);

struct Tensor {
  weights::TensorSpec spec;
  std::vector<std::uint16_t> values;  // bfloat16
  Bytes bytes() const { return std::as_bytes(std::span(values)); }
};
using Tensors = std::map<std::string, Tensor>;

// Every tensor that the model needs; standard deviation about 0.2, so that small errors show.
Tensors RandomTensors(const weights::ModelConfig& config, std::uint64_t seed);

RankModel EmptyRank(const weights::ModelConfig& config, std::uint32_t rank, std::int64_t tp_size);
std::vector<RankModel> LoadedRanks(const weights::ModelConfig& config, const Tensors& tensors, std::int64_t tp_size);
std::vector<const RankModel*> Pointers(const std::vector<RankModel>& ranks);

// The last token's logits, computed in double from the full tensors.
std::vector<double> PlainLogits(const weights::ModelConfig& config, const Tensors& tensors,
                                std::span<const std::int32_t> tokens);

}  // namespace refit::engine::reference::testing
