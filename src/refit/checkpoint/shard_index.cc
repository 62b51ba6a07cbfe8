// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/shard_index.h"

#include <algorithm>

#include <fmt/format.h>

#include "refit/checkpoint/json.h"

namespace refit::checkpoint {
namespace {

using Kind = JsonValue::Kind;

// No '/', so no absolute path and no "..": the name can only mean a file of the folder itself. What is there may be a
// symbolic link (Hugging Face's cache makes such), because that is the folder owner's choice and not the index's.
bool IsPlainShardName(std::string_view name) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && std::none_of(name.begin(), name.end(), control);
}

}  // namespace

Result<std::map<std::string, std::string>> ParseShardIndex(std::string_view text) {
  REFIT_ASSIGN_OR_RETURN(const JsonValue index, ParseJson(text));
  const JsonValue* weight_map = index.Find("weight_map");
  if (weight_map == nullptr || !weight_map->is(Kind::kObject)) {
    return InvalidArgument("it has no weight_map", "download the checkpoint again");
  }
  std::map<std::string, std::string> shards;
  for (std::size_t i = 0; i < weight_map->keys.size(); ++i) {
    const JsonValue& file = weight_map->items[i];
    if (!file.is(Kind::kString) || !IsPlainShardName(file.text)) {
      return InvalidArgument(
          fmt::format("weight_map puts tensor {} into {}", Quote(weight_map->keys[i]), ToString(file)),
          "name plain .safetensors files of the checkpoint's own folder");
    }
    shards.emplace(weight_map->keys[i], file.text);
  }
  if (shards.empty()) {
    return InvalidArgument("weight_map names no tensor", "give a checkpoint that has weights");
  }
  return shards;
}

}  // namespace refit::checkpoint
