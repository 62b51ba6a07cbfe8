// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Byte-level BPE both ways, from a Hugging Face tokenizer.json: the GPT-2 and Llama-3/Qwen/SmolLM pre-tokenizers
// (ByteLevel, Digits, Split by regex; PCRE2 for Unicode classes), added tokens, merges. Anything else is refused by
// name. A tokenizer that normalises to NFC is accepted; text is taken to be in NFC already. Thread: any, after Open.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"

namespace refit::checkpoint {

using TokenId = std::int32_t;

class Tokenizer {
 public:
  // NOT_FOUND where the folder has no tokenizer.json (random checkpoints have none): token ids are the way then.
  static Result<std::unique_ptr<Tokenizer>> Open(const std::string& folder);
  // From the text of tokenizer.json and the "chat_template" of tokenizer_config.json ("" for none).
  static Result<std::unique_ptr<Tokenizer>> Parse(std::string_view text, const std::string& chat_template);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Added tokens ("<|im_start|>") in the text become their ids. Nothing is put before or after (no post-processor).
  Result<std::vector<TokenId>> Encode(std::string_view text) const;
  // Invalid UTF-8 at the ends is replaced; added special tokens are left out when skip_special.
  enum class SpecialTokens : std::uint8_t { kKeep, kSkip };
  std::string Decode(std::span<const TokenId> tokens, SpecialTokens special) const;

  // One user turn in ChatML form, as the SmolLM2 and Qwen templates write it, ready for an answer; with the template's
  // own system message where it has one for such a conversation (SmolLM2's).
  std::string ChatPrompt(std::string_view user) const;

 private:
  Tokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace refit::checkpoint
