// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How long to wait before something is tried again: twice as long after each failure, up to a limit, and half of it
// drawn, so that those who failed together do not come back together.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "refit/base/mutant.h"
#include "refit/base/prng.h"
#include "refit/base/time.h"

namespace refit {

struct BackoffLimits {
  Duration first;
  Duration max;
};

// Within (half of it, the whole] of first * 2^failures, at most max.
inline Duration Backoff(BackoffLimits limits, std::size_t failures, Prng& prng) {
  Duration whole = std::min(limits.first, limits.max);
  for (std::size_t i = 0; i < failures && whole < limits.max; ++i) {
    whole = std::min(2 * whole, limits.max);
  }
  const auto half = static_cast<std::uint64_t>(whole.count()) / 2;
  const Duration drawn(static_cast<Duration::rep>(prng.Below(half + 1)));
  return REFIT_MUTANT("RX-QUAR-04/no-jitter", whole - drawn, whole);
}

}  // namespace refit
