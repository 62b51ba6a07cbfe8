// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// /weights_checker's four actions, and random weights.

#include <algorithm>
#include <memory>

#include "refit/base/str.h"
#include "refit/device/hash.h"
#include "refit/engine/reference/convert.h"
#include "refit/engine/reference/model.h"

namespace refit::engine::reference {
namespace {

std::uint64_t Mix(std::uint64_t z) {  // splitmix64's output function
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint64_t HashName(std::string_view name) {  // FNV-1a
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return hash;
}

}  // namespace

void RankModel::FillRandom(std::uint64_t seed) {
  if (released_) {
    return;
  }
  constexpr float kHalfWidth = 0.1F;  // wide enough that the text it says wanders instead of repeating one token
  for (const auto& [name, target] : targets_) {
    if (target.slices.front().source != name) {
      continue;  // a fused name of Llama's: filled by its pieces
    }
    const float center = target.full_shape.size() == 1 ? 1.0F : 0.0F;  // norms
    const std::uint64_t start = Mix(seed) ^ HashName(name);
    std::uint64_t source_columns = 1;
    for (std::size_t i = 1; i < target.full_shape.size(); ++i) {
      source_columns *= static_cast<std::uint64_t>(target.full_shape[i]);
    }
    std::uint16_t* parameter = storage_.data() + offsets_[target.parameter];
    for (const weights::SourceSlice& slice : target.slices) {
      std::uint16_t* into = parameter + slice.target_row * slice.column_count;
      for (std::int64_t row = 0; row < slice.row_count; ++row) {
        std::uint64_t element = static_cast<std::uint64_t>(slice.row_begin + row) * source_columns +
                                static_cast<std::uint64_t>(slice.column_begin);
        for (std::int64_t column = 0; column < slice.column_count; ++column, ++element) {
          const std::uint64_t bits = Mix(start + (element + 1) * 0x9E3779B97F4A7C15ULL);
          const float unit = static_cast<float>(bits >> 40) * 0x1.0p-23F - 1.0F;  // [-1, 1)
          *into++ = ToBfloat16(center + unit * kHalfWidth);
        }
      }
    }
  }
}

std::map<std::string, std::string> RankModel::Checksums() const {
  std::map<std::string, std::string> checksums;
  if (released_) {
    return checksums;
  }
  const std::unique_ptr<device::ParameterHasher> hasher = device::MakeParameterHasher(ParameterHashKind::kSha256Prefix);
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    hasher->Reset(bytes(i).size());
    hasher->Update(bytes(i));
    checksums.emplace(layout_.parameters[i].name, hasher->Finish());
  }
  return checksums;
}

void RankModel::Snapshot() { snapshot_ = storage_; }

void RankModel::DropSnapshot() { snapshot_ = {}; }

void RankModel::ResetTensors(std::uint64_t seed) { FillRandom(~seed); }

Status RankModel::Compare() const {
  if (snapshot_.empty()) {
    return FailedPrecondition("no snapshot was taken", "send the action snapshot first");
  }
  if (released_) {
    return FailedPrecondition("the weights are released", "resume them first");
  }
  std::string first;
  std::size_t different = 0;
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    const std::size_t elements = bytes(i).size() / sizeof(std::uint16_t);
    if (!std::equal(values(i), values(i) + elements, snapshot_.data() + offsets_[i])) {
      first = different == 0 ? layout_.parameters[i].name : first;
      ++different;
    }
  }
  if (different != 0) {
    return DataLoss(StrCat(different, " parameters differ from the snapshot, the first is ", first),
                    "refit the engine with the complete set");
  }
  return OkStatus();
}

}  // namespace refit::engine::reference
