// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Time as the core sees it: an argument. Only exec/clock.h reads a clock.

#pragma once

#include <chrono>

namespace refit {

using Duration = std::chrono::nanoseconds;

// Tag of our monotonic time line; has no now() on purpose.
struct MonotonicTime {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<MonotonicTime, Duration>;
  static constexpr bool is_steady = true;
};
using Instant = MonotonicTime::time_point;

inline constexpr Instant kNever = Instant::max();

constexpr double ToSeconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
constexpr double ToMillis(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }
constexpr Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace refit
