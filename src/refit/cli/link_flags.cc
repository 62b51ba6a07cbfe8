// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/cli/link_flags.h"

#include <charconv>

#include "refit/base/str.h"
#include "refit/config/schema.h"

namespace refit::cli {
namespace {

constexpr ByteCount kPieceAlignment = 64 * kKiB;
constexpr std::string_view kCuda = "cuda:";

}  // namespace

Result<std::optional<int>> ParseDevice(std::string_view flag, const std::string& text) {
  if (text == "cpu") {
    return std::optional<int>();
  }
  int ordinal = -1;
  const char* const begin = text.data() + kCuda.size();
  const char* const end = text.data() + text.size();
  if (text.starts_with(kCuda) && std::from_chars(begin, end, ordinal).ptr == end && ordinal >= 0) {
    return std::optional(ordinal);
  }
  return InvalidArgument(StrCat(flag, " is ", text), "give cpu, or cuda:0 and so on");
}

Result<ByteCount> ParsePieceBytes(const std::string& text) {
  REFIT_ASSIGN_OR_RETURN(const ByteCount bytes, config::ParseBytes(text));
  if (bytes == 0 || bytes % kPieceAlignment != 0) {
    return InvalidArgument(StrCat("--piece-bytes is ", text), "give a multiple of 64KiB");
  }
  return bytes;
}

}  // namespace refit::cli
