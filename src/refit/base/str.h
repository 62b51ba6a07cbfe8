// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// StrCat for the core, which has no fmt: strings, numbers and ids joined.

#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "refit/base/ids.h"

namespace refit {
namespace str_internal {

inline void Append(std::string& out, std::string_view part) { out += part; }
inline void Append(std::string& out, const char* part) { out += part; }
inline void Append(std::string& out, char part) { out += part; }
template <std::integral T>
  requires(!std::same_as<T, char>)
void Append(std::string& out, T part) {
  out += std::to_string(part);
}
template <typename Tag, typename Rep>
void Append(std::string& out, StrongInt<Tag, Rep> part) {
  out += std::to_string(part.value());
}

}  // namespace str_internal

template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::string out;
  (str_internal::Append(out, parts), ...);
  return out;
}

}  // namespace refit
