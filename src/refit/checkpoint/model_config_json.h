// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Hugging Face's config.json, as far as three architectures need it.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "refit/base/status.h"
#include "refit/weights/model_config.h"

namespace refit::checkpoint {

// Refuses, by key and value, whatever would make the model another one than the config says: scaled RoPE, biases,
// quantised weights, other dtypes. The caller adds the file to an error.
Result<weights::ModelConfig> ParseModelConfig(std::string_view text);

// The config.json that ParseModelConfig reads back and other loaders accept. seed is kept as "refit_random".
std::string FormatModelConfig(const weights::ModelConfig& config, std::uint64_t seed);

}  // namespace refit::checkpoint
