// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/shard_layout.h"

#include <algorithm>
#include <utility>

#include "refit/base/str.h"

namespace refit::weights {
namespace {

// The part of a dimension that one rank holds.
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

class LayoutBuilder {
 public:
  LayoutBuilder(const ModelConfig& config, TpShard shard) : config_(config), shard_(shard) {}

  std::vector<EngineParameter> Build() {
    const Range vocabulary = Share(config_.vocab_size);
    AddRows("model.embed_tokens.weight", config_.hidden_size, {{"model.embed_tokens.weight", vocabulary}});
    if (!config_.tie_word_embeddings) {
      AddRows("lm_head.weight", config_.hidden_size, {{"lm_head.weight", vocabulary}});
    }
    AddVector("model.norm.weight", config_.hidden_size);
    for (std::int64_t layer = 0; layer < config_.layer_count; ++layer) {
      AddLayer(StrCat("model.layers.", layer, "."));
    }
    std::sort(parameters_.begin(), parameters_.end(),
              [](const EngineParameter& a, const EngineParameter& b) { return a.name < b.name; });
    return std::move(parameters_);
  }

 private:
  struct RowPart {
    std::string source;
    Range rows;
  };

  Range Share(std::int64_t count) const {
    const std::int64_t share = count / shard_.size;
    return {.begin = share * rank(), .count = share};
  }
  // Rows of the KV heads of this rank; where there are more ranks than heads, neighbours hold the same head.
  Range KvRows() const {
    const std::int64_t heads = config_.kv_head_count;
    const Range share = heads >= shard_.size ? Share(heads) : Range{rank() / (shard_.size / heads), 1};
    return {.begin = share.begin * config_.head_size, .count = share.count * config_.head_size};
  }
  std::int64_t rank() const { return shard_.rank.value(); }

  // A parameter without slices yet; the leading dimensions of `shape` are its rows.
  EngineParameter& Add(std::string name, Shape shape) {
    EngineParameter& parameter = parameters_.emplace_back();
    parameter.name = std::move(name);
    parameter.dtype = config_.dtype;
    parameter.column_count = shape.size() == 1 ? 1 : shape.back();
    parameter.row_count = shape.front() * (shape.size() == 3 ? shape[1] : 1);
    parameter.shape = std::move(shape);
    return parameter;
  }

  static void Append(EngineParameter& parameter, std::string source, Range rows, Range columns) {
    std::int64_t filled = 0;
    if (!parameter.slices.empty()) {
      filled = parameter.slices.back().target_row + parameter.slices.back().row_count;
    }
    parameter.slices.push_back({.source = std::move(source),
                                .row_begin = rows.begin,
                                .row_count = rows.count,
                                .column_begin = columns.begin,
                                .column_count = columns.count,
                                .target_row = filled});
  }

  void AddVector(const std::string& name, std::int64_t count) { Append(Add(name, {count}), name, {0, count}, {0, 1}); }
  void AddRows(std::string name, std::int64_t column_count, std::vector<RowPart> parts) {
    std::int64_t row_count = 0;
    for (const RowPart& part : parts) {
      row_count += part.rows.count;
    }
    EngineParameter& parameter = Add(std::move(name), {row_count, column_count});
    for (RowPart& part : parts) {
      Append(parameter, std::move(part.source), part.rows, {0, column_count});
    }
  }
  void AddColumns(const std::string& name, std::int64_t row_count, Range columns) {
    Append(Add(name, {row_count, columns.count}), name, {0, row_count}, columns);
  }

  void AddLayer(const std::string& prefix) {
    const std::int64_t hidden = config_.hidden_size;
    const std::string attention = prefix + "self_attn.";
    AddVector(prefix + "input_layernorm.weight", hidden);
    AddVector(prefix + "post_attention_layernorm.weight", hidden);
    // Whole heads: the TP size divides their count.
    const Range heads = Share(config_.head_count);
    const Range query = {.begin = heads.begin * config_.head_size, .count = heads.count * config_.head_size};
    AddRows(attention + "qkv_proj.weight", hidden,
            {{attention + "q_proj.weight", query},
             {attention + "k_proj.weight", KvRows()},
             {attention + "v_proj.weight", KvRows()}});
    AddColumns(attention + "o_proj.weight", hidden, query);
    if (config_.architecture != Architecture::kLlama) {
      AddVector(attention + "q_norm.weight", config_.head_size);
      AddVector(attention + "k_norm.weight", config_.head_size);
    }
    if (config_.architecture == Architecture::kQwen3Moe) {
      AddExperts(prefix + "mlp.");
      return;
    }
    const Range width = Share(config_.intermediate_size);
    AddRows(prefix + "mlp.gate_up_proj.weight", hidden,
            {{prefix + "mlp.gate_proj.weight", width}, {prefix + "mlp.up_proj.weight", width}});
    AddColumns(prefix + "mlp.down_proj.weight", hidden, width);
  }

  void AddExperts(const std::string& prefix) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t experts = config_.expert_count;
    const Range width = Share(config_.expert_intermediate_size);
    AddRows(prefix + "gate.weight", hidden, {{prefix + "gate.weight", {0, experts}}});
    EngineParameter& w13 = Add(prefix + "experts.w13_weight", {experts, 2 * width.count, hidden});
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      Append(w13, StrCat(prefix, "experts.", expert, ".gate_proj.weight"), width, {0, hidden});
      Append(w13, StrCat(prefix, "experts.", expert, ".up_proj.weight"), width, {0, hidden});
    }
    EngineParameter& w2 = Add(prefix + "experts.w2_weight", {experts, hidden, width.count});
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      Append(w2, StrCat(prefix, "experts.", expert, ".down_proj.weight"), {0, hidden}, width);
    }
  }

  const ModelConfig& config_;
  const TpShard shard_;
  std::vector<EngineParameter> parameters_;
};

}  // namespace

Result<EngineLayout> MakeSglangLayout(const ModelConfig& config, TpShard shard) {
  REFIT_RETURN_IF_ERROR(CheckTpSize(config, shard.size));
  if (shard.rank.value() >= shard.size) {
    return InvalidArgument(StrCat("TP rank ", shard.rank, " of ", shard.size), "ranks count from 0");
  }
  EngineLayout layout{.shard = shard, .parameters = LayoutBuilder(config, shard).Build()};
  for (const EngineParameter& parameter : layout.parameters) {
    REFIT_RETURN_IF_ERROR(SizeOf({parameter.name, parameter.dtype, parameter.shape}).status());
  }
  return layout;
}

}  // namespace refit::weights
