// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Cuts text into the words that byte-pair encoding works on, as tokenizer.json's "pre_tokenizer" says.

#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "refit/base/status.h"
#include "refit/checkpoint/json.h"

namespace refit::checkpoint {

class PreTokenizer {
 public:
  // node: the value of "pre_tokenizer". Known are ByteLevel (last, and needed), Digits, Split by a regular expression
  // with behaviour Isolated, and a Sequence of them; anything else is refused by name.
  static Result<PreTokenizer> Make(const JsonValue& node);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends the words of text, which must be UTF-8; they view into it and cover it.
  Status Split(std::string_view text, std::vector<std::string_view>& words) const;

 private:
  PreTokenizer();
  struct Pattern;
  Status Add(const JsonValue& node);
  Status AddPattern(std::string_view expression);
  std::vector<std::unique_ptr<Pattern>> patterns_;  // each cuts what the one before left
  bool byte_level_ = false;
};

}  // namespace refit::checkpoint
