// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Text from outside in messages of ours.

#pragma once

#include <string>
#include <string_view>

namespace refit::device {

// One line, at most 80 characters, control characters and quotes as '?'.
inline std::string Printable(std::string_view text) {
  constexpr std::size_t kLimit = 80;
  std::string out;
  for (const char c : text.substr(0, kLimit)) {
    out += (c >= ' ' && c <= '~' && c != '\'') ? c : '?';
  }
  return text.size() > kLimit ? out + "…" : out;
}

}  // namespace refit::device
