// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A tree of configuration text: what a YAML file says, before and after the schema looked at it. Scalars stay text; the
// schema knows their kinds.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"

namespace refit::config {

struct Node {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  int line = 0;  // in the file; 0: a default of the schema
  std::string text;
  std::vector<std::string> keys;  // a map's, in the order of the file; keys[i] names items[i]
  std::vector<Node> items;        // a list's, or a map's

  const Node* Find(std::string_view key) const;  // null where this is no map, or has no such key
  Node* Find(std::string_view key);
  Node& Add(std::string key, Node value);  // to a map; the key must be new
};

// Errors name the line. Duplicate keys, aliases and several documents are errors: each hides what a reader sees.
Result<Node> ParseYaml(std::string_view text);

}  // namespace refit::config
