// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Where a command's words go: standard output has the result (with --json exactly one object, also on error,
// RC-OBS-05), standard error everything else.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"

namespace refit::cli {

enum class Form { kText, kJson };

// What an engine was left with, for an error.
struct ResidueLine {
  std::uint32_t engine = 0;
  std::string residue;
};

// Flushed, with a newline.
void Print(std::string_view text);

// "refit: message (remedy)" on standard error, or the error object on standard output. Returns exit_code.
int Fail(Form form, int exit_code, const Status& status, const std::vector<ResidueLine>& residues = {});

std::string ErrorAsText(const Status& status);

}  // namespace refit::cli
