// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// An index and a config.json from nobody knows where: no file name that is accepted leaves the folder.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "refit/base/check.h"
#include "refit/checkpoint/model_config_json.h"
#include "refit/checkpoint/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto shards = refit::checkpoint::ParseShardIndex(text); shards.ok()) {
    for (const auto& [tensor, file] : *shards) {
      REFIT_CHECK(file.find('/') == std::string::npos && file != ".." && file.find('\0') == std::string::npos,
                  "a shard leaves the folder");
    }
  }
  if (const auto config = refit::checkpoint::ParseModelConfig(text); config.ok()) {
    REFIT_CHECK(refit::weights::CheckModelConfig(*config).ok(), "a config was accepted and is none");
  }
  return 0;
}
