// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How an engine stores a model on one TP rank: SGLang's parameter names, fused (qkv_proj, gate_up_proj, w13, w2) and
// sharded by rows or columns. `verify` computes from it what each rank must hold; the reference engine loads by it.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/weights/model_config.h"
#include "refit/weights/tensor_spec.h"

namespace refit::weights {

// A rectangle of a source tensor, seen as a matrix: rows = shape[0] (1 for a scalar), columns = the other dimensions'
// product. It lands in whole rows of the parameter, also seen as a matrix, from target_row on.
struct SourceSlice {
  std::string source;  // Hugging Face name
  std::int64_t row_begin = 0;
  std::int64_t row_count = 0;
  std::int64_t column_begin = 0;
  std::int64_t column_count = 0;  // equal to the parameter's columns
  std::int64_t target_row = 0;

  friend bool operator==(const SourceSlice&, const SourceSlice&) = default;
};

struct EngineParameter {
  std::string name;  // SGLang's name: "model.layers.0.self_attn.qkv_proj.weight"
  DType dtype = DType::kBfloat16;
  Shape shape;                 // on this rank; experts: [experts, rows, columns], whose first two are the rows
  std::int64_t row_count = 0;  // as a matrix
  std::int64_t column_count = 0;
  std::vector<SourceSlice> slices;  // cover the parameter exactly once, in target_row order

  friend bool operator==(const EngineParameter&, const EngineParameter&) = default;
};

struct TpShard {
  TpRank rank;
  std::int64_t size = 1;
};

struct EngineLayout {
  TpShard shard;
  std::vector<EngineParameter> parameters;  // in byte order of names, as /weights_checker lists them
};

// The layout that an unmodified SGLang uses (full weights under HF names, sliced by its loaders).
// KV heads fewer than ranks are replicated: rank r holds KV head r / (tp / kv_heads). Tied embeddings have no lm_head.
Result<EngineLayout> MakeSglangLayout(const ModelConfig& config, TpShard shard);

}  // namespace refit::weights
