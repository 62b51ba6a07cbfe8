// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A tokenizer.json from nobody knows where; one that is accepted can encode and decode.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "refit/checkpoint/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using refit::checkpoint::Tokenizer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::Parse(text, "");
  if (!tokenizer.ok()) {
    return 0;
  }
  const auto tokens = (*tokenizer)->Encode("ab  abc 12\n\xc3\xa9 <|end|>a");
  if (tokens.ok()) {
    (void)(*tokenizer)->Decode(*tokens, Tokenizer::SpecialTokens::kSkip);
  }
  return 0;
}
