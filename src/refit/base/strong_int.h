// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Integers that cannot be passed for one another: an AttemptNumber is no WeightVersion.

#pragma once

#include <compare>
#include <functional>
#include <string>

namespace refit {

template <typename Tag, typename Rep>
class StrongInt {
 public:
  using rep = Rep;
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr StrongInt Next() const { return StrongInt(static_cast<Rep>(value_ + 1)); }
  friend constexpr auto operator<=>(StrongInt, StrongInt) = default;

 private:
  Rep value_ = 0;
};

template <typename Tag, typename Rep>
std::string ToString(StrongInt<Tag, Rep> id) {
  return std::to_string(id.value());
}

}  // namespace refit

template <typename Tag, typename Rep>
struct std::hash<refit::StrongInt<Tag, Rep>> {
  std::size_t operator()(refit::StrongInt<Tag, Rep> id) const { return std::hash<Rep>{}(id.value()); }
};
