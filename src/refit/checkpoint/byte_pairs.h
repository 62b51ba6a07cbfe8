// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding over bytes: the vocabulary and the merges of a tokenizer.json's "model".

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "refit/base/status.h"
#include "refit/checkpoint/json.h"
#include "refit/checkpoint/tokenizer.h"

namespace refit::checkpoint {

inline constexpr TokenId kNoToken = -1;
inline constexpr TokenId kTokenMax = 4'000'000;  // an id from a file sizes a table

// The bytes that a byte-level token stands for ("Ġthe" is " the"); a token with a letter of no byte stands for itself.
std::string BytesOfToken(std::string_view token);

class BytePairs {
 public:
  static Result<BytePairs> Make(const JsonValue& model);

  // Appends the tokens of one word. A byte that the vocabulary lacks is left out, as Hugging Face's library does.
  void Encode(std::string_view word, std::vector<TokenId>& tokens) const;

  // Index: token id. The bytes of each; empty for an id that is not in the vocabulary.
  const std::vector<std::string>& token_bytes() const { return token_bytes_; }

 private:
  struct Merge {
    std::uint32_t rank = 0;  // lower merges first
    TokenId merged = kNoToken;
  };
  Status AddVocabulary(const JsonValue& vocabulary);
  Status AddMerges(const JsonValue& merges, const JsonValue& vocabulary);
  const Merge* FindMerge(TokenId left, TokenId right) const;

  std::vector<std::string> token_bytes_;
  std::array<TokenId, 256> byte_tokens_{};
  std::unordered_map<std::uint64_t, Merge> merges_;       // (left, right) packed
  std::unordered_map<std::string, TokenId> whole_words_;  // where merges are ignored for words of the vocabulary
  bool ignore_merges_ = false;
};

}  // namespace refit::checkpoint
