// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// model.safetensors.index.json: which shard holds which tensor.

#pragma once

#include <map>
#include <string>
#include <string_view>

#include "refit/base/status.h"

namespace refit::checkpoint {

// Tensor name → file name. Hostile input is expected: a file name is a plain name, so that no path leaves the folder,
// and ends in ".safetensors". At least one tensor.
Result<std::map<std::string, std::string>> ParseShardIndex(std::string_view text);

}  // namespace refit::checkpoint
