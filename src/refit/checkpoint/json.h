// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A JSON tree for files that nobody vouches for: duplicate keys, deep nesting and absurd sizes are errors, and a number
// is an integer only where it was written as one and fits.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"

namespace refit::checkpoint {

struct JsonValue {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;  // integers too
  std::string text;
  std::vector<std::string> keys;  // an object's, in byte order; keys[i] names items[i]
  std::vector<JsonValue> items;   // an array's, or an object's

  bool is(Kind wanted) const { return kind == wanted; }
  const JsonValue* Find(std::string_view key) const;  // null where this is no object, or has no such key
};

inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonValues = 4'000'000;  // a header of 100 MB cannot claim gigabytes of tree

// Errors say what is wrong and at which byte; the caller adds the file.
Result<JsonValue> ParseJson(std::string_view text);

std::string Quote(std::string_view text);  // as a JSON string, quotes included; bytes that are no UTF-8 are replaced

// As it would stand in a file, cut after 60 bytes: for error messages.
std::string ToString(const JsonValue& value);

}  // namespace refit::checkpoint
