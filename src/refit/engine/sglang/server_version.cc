// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/server_version.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "refit/base/str.h"
#include "refit/engine/sglang/sglang_answer.h"

namespace refit::engine::sglang {
namespace {

using Version = std::array<std::uint32_t, 3>;
constexpr Version kOldest = {0, 5, 9};
constexpr Version kFirstGuarded = {0, 5, 21};

}  // namespace

Result<sync::SessionFamily> FamilyOfVersion(std::string_view version) {
  Version numbers{};
  const char* next = version.data();
  const char* const end = version.data() + version.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (next == end || *next++ != '.')) {
      return FailedPrecondition(StrCat("the engine's version \"", CapMessage(version), "\" is not one of SGLang"));
    }
    const auto [rest, error] = std::from_chars(next, end, numbers[i]);
    if (error != std::errc()) {
      return FailedPrecondition(StrCat("the engine's version \"", CapMessage(version), "\" is not one of SGLang"));
    }
    next = rest;
  }
  if (numbers < kOldest) {
    return FailedPrecondition(StrCat("SGLang ", CapMessage(version), " is too old"), "0.5.9 or later");
  }
  const std::string_view suffix(next, end);
  if (suffix.find(".dev") != std::string_view::npos || suffix.find("+g") != std::string_view::npos) {
    return sync::SessionFamily::kB;
  }
  return numbers < kFirstGuarded ? sync::SessionFamily::kA : sync::SessionFamily::kC;
}

}  // namespace refit::engine::sglang
