// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How a tensor of an update is installed: what SGLang's load_weights and weight loaders do on a CPU, measured on 0.5.17
// and 0.5.23 and read in 0.5.17's models/{llama,qwen3,qwen3_moe}.py, layers/parameter.py and
// model_loader/weight_utils.py.

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/engine/reference/convert.h"
#include "refit/engine/reference/model.h"

namespace refit::engine::reference {
namespace {

LoadResult Installed() { return {LoadOutcome::kInstalled, {}}; }
LoadResult Fatal(std::string message) { return {LoadOutcome::kFatal, std::move(message)}; }

// re.search(r"layers\.(\d+)\."), saturating.
std::optional<std::int64_t> LayerOf(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  for (std::size_t at = name.find(kLayers); at != std::string_view::npos; at = name.find(kLayers, at + 1)) {
    const std::string_view rest = name.substr(at + kLayers.size());
    std::int64_t layer = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    const bool is_number = end != rest.data() && rest.front() != '-';
    if (is_number && end != rest.data() + rest.size() && *end == '.') {
      return error == std::errc() ? layer : INT64_MAX;
    }
  }
  return std::nullopt;
}

std::string ReplaceAll(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// What Qwen3's loader takes for a piece of a fused parameter: any name that contains one of these.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kStacked = {{{"q_proj", "qkv_proj"},
                                                                                    {"k_proj", "qkv_proj"},
                                                                                    {"v_proj", "qkv_proj"},
                                                                                    {"gate_proj", "gate_up_proj"},
                                                                                    {"up_proj", "gate_up_proj"}}};

std::string TorchSize(const weights::Shape& shape) {
  std::string text = "torch.Size([";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += StrCat(i == 0 ? "" : ", ", shape[i]);
  }
  return text + "])";
}

// A loaded tensor as a matrix, and where it is.
struct Matrix {
  weights::DType dtype = weights::DType::kBfloat16;
  const std::byte* bytes = nullptr;
  std::int64_t row_count = 0;
  std::int64_t column_count = 0;
};

// Copies the slice's rectangle as far as the tensor has it, and zeros the rest. Allocates nothing: it runs guarded.
void CopySlice(const Matrix& tensor, const weights::SourceSlice& slice, std::uint16_t* target) {
  const std::int64_t rows = std::clamp<std::int64_t>(tensor.row_count - slice.row_begin, 0, slice.row_count);
  const std::int64_t columns =
      std::clamp<std::int64_t>(tensor.column_count - slice.column_begin, 0, slice.column_count);
  const auto item = static_cast<std::int64_t>(weights::ItemSize(tensor.dtype));
  const auto element_at = [&](std::int64_t row, std::int64_t column) {
    return tensor.bytes + (row * tensor.column_count + column) * item;
  };
  if (columns == tensor.column_count && columns == slice.column_count) {
    if (rows > 0) {
      ConvertToBfloat16(tensor.dtype, element_at(slice.row_begin, 0), static_cast<std::size_t>(rows * columns), target);
    }
  } else {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::uint16_t* into = target + row * slice.column_count;
      if (columns > 0) {
        const std::byte* from = element_at(slice.row_begin + row, slice.column_begin);
        ConvertToBfloat16(tensor.dtype, from, static_cast<std::size_t>(columns), into);
      }
      std::fill(into + columns, into + slice.column_count, std::uint16_t{0});
    }
  }
  std::fill(target + rows * slice.column_count, target + slice.row_count * slice.column_count, std::uint16_t{0});
}

}  // namespace

LoadResult RankModel::Load(const weights::TensorSpec& spec, Bytes bytes) {
  if (released_) {
    return Fatal("RuntimeError: the weights are released");
  }
  auto found = targets_.find(spec.name);
  if (found == targets_.end() && config_.architecture == weights::Architecture::kQwen3 &&
      (spec.name.starts_with("layers.") || spec.name.starts_with("embed_tokens.") || spec.name.starts_with("norm."))) {
    found = targets_.find("model." + spec.name);
  }
  if (found == targets_.end()) {
    return LoadUnknown(spec.name);
  }
  return Install(found->second, spec, bytes);
}

LoadResult RankModel::LoadUnknown(std::string_view name) const {
  const LoadResult ignored = {LoadOutcome::kIgnored, StrCat("Parameter ", name, " not found in params_dict")};
  const std::optional<std::int64_t> layer = LayerOf(name);
  if (layer.has_value() && *layer >= config_.layer_count) {
    return ignored;
  }
  // Only Qwen3's loader looks a fused name up without asking whether it is there.
  if (config_.architecture != weights::Architecture::kQwen3 || name.ends_with(".bias") ||
      name.find("rotary_emb.inv_freq") != std::string_view::npos || name.find("projector") != std::string_view::npos) {
    return ignored;
  }
  for (const auto& [piece, whole] : kStacked) {
    if (name.find(piece) != std::string_view::npos) {
      return Fatal(StrCat("KeyError: '", ReplaceAll(std::string(name), piece, whole), "'"));
    }
  }
  return ignored;
}

LoadResult RankModel::Install(const Target& target, const weights::TensorSpec& spec, Bytes bytes) {
  const weights::Shape& full = target.full_shape;
  const auto agrees_but_for = [&](std::size_t dimension) {
    return spec.shape.size() == 2 && spec.shape[1 - dimension] == full[1 - dimension];
  };
  const bool fits = target.leniency == Leniency::kRows      ? agrees_but_for(0)
                    : target.leniency == Leniency::kColumns ? agrees_but_for(1)
                                                            : spec.shape == full;
  if (!fits) {
    return Fatal(StrCat("AssertionError: Attempted to load weight (", TorchSize(spec.shape), ") into parameter (",
                        TorchSize(full), ")"));
  }
  const Result<ByteCount> size = weights::SizeOf(spec);
  if (!size.has_value() || *size != bytes.size()) {
    return Fatal(StrCat("RuntimeError: ", ToString(spec), " does not fit its ", bytes.size(), " bytes"));
  }
  Matrix tensor = {spec.dtype, bytes.data(), spec.shape.front(), 1};
  for (std::size_t i = 1; i < spec.shape.size(); ++i) {
    tensor.column_count *= spec.shape[i];
  }
  const std::int64_t columns = layout_.parameters[target.parameter].column_count;
  std::uint16_t* parameter = storage_.data() + offsets_[target.parameter];
  const Status copied = device::GuardMapped(spec.name, [&] {
    for (const weights::SourceSlice& slice : target.slices) {
      CopySlice(tensor, slice, parameter + slice.target_row * columns);
    }
  });
  return copied.ok() ? Installed() : Fatal(StrCat("Bus error: ", copied.message()));
}

}  // namespace refit::engine::reference
