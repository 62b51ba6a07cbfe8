// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints with random weights, made offline: for the demo, the benches and the tests.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "refit/base/status.h"
#include "refit/weights/model_config.h"

namespace refit::checkpoint {

// "tiny" (Qwen3, 3 layers, 1.4 MB), "tiny-llama" (6 heads, 3 KV heads: TP 3 works), "tiny-moe" (4 experts),
// "qwen3-0.6b" (310 tensors, 1.192e9 bytes, tied), "qwen3-0.6b-untied" (311 tensors, 1.503e9 bytes, settled D11) and
// "moe-18k" (48 layers x 128 experts x 3, hidden 256, expert width 128; settled D12).
Result<weights::ModelConfig> RandomShape(std::string_view name);

// Writes config.json and model.safetensors into folder (created) unless it already holds this shape and seed: whole or
// not at all. Same seed, same bytes, on every machine. Normal-like, standard deviation 0.02; norms around 1.
Status WriteRandomCheckpoint(const weights::ModelConfig& config, std::uint64_t seed, const std::string& folder);

// A copy of a checkpoint that visibly speaks otherwise: the rows of its embedding rolled by one. Same manifest.
Status WriteAlteredCheckpoint(const std::string& source_folder, const std::string& folder);

}  // namespace refit::checkpoint
