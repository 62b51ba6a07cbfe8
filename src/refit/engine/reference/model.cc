// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/model.h"

#include <algorithm>
#include <utility>

#include "refit/base/str.h"
#include "refit/checkpoint/checkpoint.h"
#include "refit/engine/reference/convert.h"

namespace refit::engine::reference {
namespace {

constexpr std::size_t kAlignment = 32;  // elements: 64 bytes

bool EndsWith(std::string_view text, std::string_view end) { return text.ends_with(end); }

// Linear layers whose loader cuts and pads along the dimension that TP shards.
bool IsRowSharded(std::string_view name) {
  return EndsWith(name, ".q_proj.weight") || EndsWith(name, ".k_proj.weight") || EndsWith(name, ".v_proj.weight") ||
         EndsWith(name, ".gate_proj.weight") || EndsWith(name, ".up_proj.weight");
}
bool IsColumnSharded(std::string_view name) {
  return EndsWith(name, ".o_proj.weight") || EndsWith(name, ".down_proj.weight");
}

}  // namespace

Result<RankModel> RankModel::Make(const weights::ModelConfig& config, weights::TpShard shard) {
  if (config.dtype != weights::DType::kBfloat16) {
    return InvalidArgument(StrCat("the reference engine stores bfloat16, the model has ", TorchName(config.dtype)),
                           "convert the checkpoint to bfloat16");
  }
  RankModel model;
  model.config_ = config;
  REFIT_ASSIGN_OR_RETURN(model.layout_, weights::MakeSglangLayout(config, shard));
  REFIT_ASSIGN_OR_RETURN(const weights::Manifest expected, weights::ExpectedTensors(config));
  std::map<std::string, weights::Shape> sources;
  for (const weights::TensorSpec& spec : expected.tensors()) {
    sources.emplace(spec.name, spec.shape);
  }
  for (std::size_t i = 0; i < model.layout_.parameters.size(); ++i) {
    const weights::EngineParameter& parameter = model.layout_.parameters[i];
    model.index_.emplace(parameter.name, i);
    model.offsets_.push_back(model.element_count_);
    const auto elements = static_cast<std::size_t>(parameter.row_count * parameter.column_count);
    model.element_count_ += RoundUp(elements, kAlignment);
    model.AddTargets(i, sources);
  }
  model.Resume();
  return model;
}

void RankModel::AddTargets(std::size_t parameter, const std::map<std::string, weights::Shape>& sources) {
  const weights::EngineParameter& stored = layout_.parameters[parameter];
  Target fused;
  fused.parameter = parameter;
  std::string previous;
  std::int64_t fused_rows = 0;
  std::int64_t fused_begin = 0;
  std::size_t source_count = 0;
  for (const weights::SourceSlice& slice : stored.slices) {
    const weights::Shape& full_shape = sources.at(slice.source);
    Target& target = targets_[slice.source];
    target.full_shape = full_shape;
    target.leniency = IsRowSharded(slice.source)      ? Leniency::kRows
                      : IsColumnSharded(slice.source) ? Leniency::kColumns
                                                      : Leniency::kNone;
    target.parameter = parameter;
    target.slices.push_back(slice);
    if (slice.source != previous) {
      fused_begin = fused_rows;
      fused_rows += full_shape.front();
      previous = slice.source;
      ++source_count;
    }
    fused.slices.push_back(slice);
    fused.slices.back().row_begin += fused_begin;
  }
  // Llama's loader takes the fused tensor too, where Qwen3's trips over its name.
  if (config_.architecture == weights::Architecture::kLlama && source_count > 1) {
    fused.full_shape = {fused_rows, stored.column_count};
    targets_.emplace(stored.name, std::move(fused));
  }
}

Status RankModel::LoadFromCheckpoint(const checkpoint::Checkpoint& checkpoint) {
  for (const weights::EngineParameter& parameter : layout_.parameters) {
    for (const weights::SourceSlice& slice : parameter.slices) {
      if (!checkpoint.manifest().Find(slice.source).has_value()) {
        return InvalidArgument(StrCat(checkpoint.folder(), ": there is no tensor ", slice.source),
                               "check that config.json belongs to these tensors");
      }
    }
  }
  const std::span<const weights::TensorSpec> tensors = checkpoint.manifest().tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == "lm_head.weight" && config_.tie_word_embeddings) {
      continue;  // some checkpoints repeat the embedding
    }
    const LoadResult result = Load(tensors[i], checkpoint.bytes(i));
    if (result.outcome != LoadOutcome::kInstalled) {
      return InvalidArgument(StrCat(checkpoint.folder(), ": ", tensors[i].name, ": ", result.message),
                             "check that config.json belongs to these tensors");
    }
  }
  return OkStatus();
}

void RankModel::Release() {
  storage_ = {};
  released_ = true;
}

void RankModel::Resume() {
  storage_.assign(element_count_, 0);
  released_ = false;
}

std::optional<std::size_t> RankModel::Find(std::string_view parameter) const {
  const auto found = index_.find(parameter);
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

Bytes RankModel::bytes(std::size_t index) const {
  const weights::EngineParameter& parameter = layout_.parameters[index];
  const auto elements = static_cast<std::size_t>(parameter.row_count * parameter.column_count);
  return std::as_bytes(std::span(values(index), elements));
}

ByteCount RankModel::total_bytes() const {
  ByteCount total = 0;
  for (const weights::EngineParameter& parameter : layout_.parameters) {
    total += static_cast<ByteCount>(parameter.row_count * parameter.column_count) * sizeof(std::uint16_t);
  }
  return total;
}

Result<RankModel::HfRows> RankModel::RowsByHfName(std::span<const RankModel* const> ranks, std::string_view name,
                                                  std::size_t row_limit) {
  if (ranks.empty() || ranks.front()->released_) {
    return FailedPrecondition("the weights are released", "resume them first");
  }
  if (name == "lm_head.weight" && ranks.front()->config_.tie_word_embeddings) {
    name = "model.embed_tokens.weight";
  }
  HfRows result;
  for (const RankModel* rank : ranks) {
    const auto found = rank->targets_.find(name);
    if (found == rank->targets_.end()) {
      return NotFound(StrCat("no tensor is named ", name));
    }
    const Target& target = found->second;
    if (result.rows.empty()) {
      result.shape = target.full_shape;
      std::int64_t columns = 1;
      for (std::size_t i = 1; i < result.shape.size(); ++i) {
        columns *= result.shape[i];
      }
      const std::size_t rows = std::min(row_limit, static_cast<std::size_t>(result.shape.front()));
      result.rows.assign(rows, std::vector<float>(static_cast<std::size_t>(columns)));
    }
    const auto limit = static_cast<std::int64_t>(result.rows.size());
    const std::int64_t columns = rank->layout_.parameters[target.parameter].column_count;
    for (const weights::SourceSlice& slice : target.slices) {
      for (std::int64_t row = 0; row < slice.row_count && slice.row_begin + row < limit; ++row) {
        const std::uint16_t* from = rank->values(target.parameter) + (slice.target_row + row) * columns;
        std::vector<float>& into = result.rows[static_cast<std::size_t>(slice.row_begin + row)];
        std::transform(from, from + columns, into.begin() + slice.column_begin, FromBfloat16);
      }
    }
  }
  return result;
}

}  // namespace refit::engine::reference
