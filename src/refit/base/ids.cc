// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/base/ids.h"

namespace refit {
namespace {

void AppendHex(std::string& text, std::uint64_t word) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 60; shift >= 0; shift -= 4) {
    text += kDigits[(word >> shift) & 0xF];
  }
}

}  // namespace

std::string ToString(AttemptId attempt) { return ToString(attempt.term) + ":" + std::to_string(attempt.n); }

std::string ToHex(const Id128& id) {
  std::string text;
  AppendHex(text, id.high);
  AppendHex(text, id.low);
  return text;
}

}  // namespace refit
