// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/restart_budget.h"

#include <algorithm>

#include "refit/base/mutant.h"

namespace refit::fleet {

Instant RestartBudget::Charge(Instant now, Prng& prng) {
  while (!charged_.empty() && now - charged_.front() >= options_.window) {
    charged_.pop_front();
  }
  if (charged_.size() >= options_.max_restarts && REFIT_MUTANT("RX-QUAR-04/restart-for-ever", true, false)) {
    return kNever;
  }
  Duration backoff = std::min(options_.first_backoff, options_.max_backoff);
  for (std::size_t i = 0; i < charged_.size() && backoff < options_.max_backoff; ++i) {
    backoff = std::min(2 * backoff, options_.max_backoff);
  }
  charged_.push_back(now);
  // Half of it is drawn: slots that fell together do not come back together.
  const auto half = static_cast<std::uint64_t>(backoff.count()) / 2;
  const auto jitter = static_cast<Duration::rep>(prng.Below(half + 1));
  return now + REFIT_MUTANT("RX-QUAR-04/no-jitter", backoff - Duration(jitter), backoff);
}

void RestartBudget::Refund() {
  if (!charged_.empty()) {
    charged_.pop_back();
  }
}

}  // namespace refit::fleet
