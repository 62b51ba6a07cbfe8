// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// UTF-8, one character at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace refit::checkpoint {

struct Utf8Step {
  std::size_t size = 0;                // of the character, or of the longest part that could have begun one
  std::optional<char32_t> code_point;  // nothing where the bytes are no UTF-8
};
// What text begins with; text must not be empty.
Utf8Step FirstUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string& out);

// Where text stops being UTF-8; its size where it never does.
std::size_t ValidUtf8Size(std::string_view text);

// Every part that is no UTF-8 becomes one U+FFFD, as Rust's from_utf8_lossy does it.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace refit::checkpoint
