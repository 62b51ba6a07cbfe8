// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The one table of configuration keys: names, kinds, defaults, what is allowed, what they mean. Everything else follows
// from it: refusing unknown keys, filling in defaults, docs/configuration.md (RC-CFG-11, -12).

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/config/node.h"

namespace refit::config {

enum class KeyKind : std::uint8_t {
  kSection,  // a map of the keys below it
  kList,     // of sections: "engines[].slot"
  kFree,     // anything; passed over
  kText,
  kTextList,
  kWord,    // one of `allowed`, written "one | other"
  kSwitch,  // true or false
  kInteger,
  kNumber,
  kBytes,     // "4MiB"
  kDuration,  // "60s", "500ms"
};

// kWhereGiven: a section whose keys have their defaults only where it stands in the file.
enum class Needed : std::uint8_t { kOptional, kRequired, kWhereGiven };

struct KeySpec {
  std::string_view path;
  KeyKind kind;
  std::string_view default_text;  // empty: none
  std::string_view allowed;       // for people; a kWord's choices
  std::string_view meaning;
  Needed needed = Needed::kOptional;
  std::string_view transport = {};  // "nixl": only read where that transport is in use
};

std::span<const KeySpec> Keys();

// The tree with every default filled in, or the first thing wrong with it: an unknown key (with the nearest known one),
// a value of the wrong kind, a required key that is missing.
Result<Node> ApplySchema(const Node& root);

// The key whose path is nearest to `path` among its siblings; empty where none is near.
std::string NearestKey(std::string_view parent, std::string_view key);

// Units are part of the value: "4MiB", "500ms". Errors say what is allowed, not where.
Result<ByteCount> ParseBytes(std::string_view text);
Result<Duration> ParseDuration(std::string_view text);

// docs/configuration.md.
std::string SchemaAsMarkdown();

}  // namespace refit::config
