// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/utf8.h"

namespace refit::checkpoint {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// What may follow a first byte: how many bytes, and the bounds of the first of them (Unicode's table 3-7). They rule
// out overlong forms, surrogates and what lies beyond U+10FFFF.
struct Sequence {
  std::size_t continuation_count = 0;
  unsigned second_min = 0x80;
  unsigned second_max = 0xbf;
};

std::optional<Sequence> SequenceOf(unsigned first) {
  if (first < 0x80) {
    return Sequence{};
  }
  if (first >= 0xc2 && first <= 0xdf) {
    return Sequence{.continuation_count = 1};
  }
  if (first >= 0xe0 && first <= 0xef) {
    return Sequence{2, first == 0xe0 ? 0xa0U : 0x80U, first == 0xed ? 0x9fU : 0xbfU};
  }
  if (first >= 0xf0 && first <= 0xf4) {
    return Sequence{3, first == 0xf0 ? 0x90U : 0x80U, first == 0xf4 ? 0x8fU : 0xbfU};
  }
  return std::nullopt;
}

}  // namespace

Utf8Step FirstUtf8(std::string_view text) {
  const auto byte = [text](std::size_t at) { return static_cast<unsigned>(static_cast<unsigned char>(text[at])); };
  const auto sequence = SequenceOf(byte(0));
  if (!sequence) {
    return {1, std::nullopt};
  }
  const std::size_t count = sequence->continuation_count;
  char32_t value = count == 0 ? byte(0) : byte(0) & (0x3fU >> count);
  for (std::size_t i = 1; i <= count; ++i) {
    const unsigned low = i == 1 ? sequence->second_min : 0x80;
    const unsigned high = i == 1 ? sequence->second_max : 0xbf;
    if (i >= text.size() || byte(i) < low || byte(i) > high) {
      return {i, std::nullopt};
    }
    value = (value << 6) | (byte(i) & 0x3fU);
  }
  return {count + 1, value};
}

void AppendUtf8(char32_t code_point, std::string& out) {
  const auto add = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xc0 | (code_point >> 6));
    add(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    add(0xe0 | (code_point >> 12));
    add(0x80 | ((code_point >> 6) & 0x3f));
    add(0x80 | (code_point & 0x3f));
  } else {
    add(0xf0 | (code_point >> 18));
    add(0x80 | ((code_point >> 12) & 0x3f));
    add(0x80 | ((code_point >> 6) & 0x3f));
    add(0x80 | (code_point & 0x3f));
  }
}

std::size_t ValidUtf8Size(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = FirstUtf8(text.substr(at));
    if (!step.code_point) {
      break;
    }
    at += step.size;
  }
  return at;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t valid = ValidUtf8Size(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (!text.empty()) {
      AppendUtf8(kReplacement, out);
      text.remove_prefix(FirstUtf8(text).size);
    }
  }
  return out;
}

}  // namespace refit::checkpoint
