// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Flags about GPUs and links that several commands have.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "refit/base/bytes.h"
#include "refit/base/status.h"

namespace refit::cli {

// "cpu" or "cuda:N"; nothing for the host.
Result<std::optional<int>> ParseDevice(std::string_view flag, const std::string& text);

// At least 64 KiB and a multiple of it, so that every chunk of a tensor starts where hashes and vector loads like it.
Result<ByteCount> ParsePieceBytes(const std::string& text);

}  // namespace refit::cli
