// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/restart_budget.h"

#include <cstddef>

#include "refit/base/backoff.h"
#include "refit/base/mutant.h"

namespace refit::fleet {

Instant RestartBudget::Charge(Instant now, Prng& prng) {
  while (!charged_.empty() && now - charged_.front() >= options_.window) {
    charged_.pop_front();
  }
  if (charged_.size() >= options_.max_restarts && REFIT_MUTANT("RX-QUAR-04/restart-for-ever", true, false)) {
    return kNever;
  }
  const std::size_t failures = charged_.size();
  charged_.push_back(now);
  return now + Backoff({options_.first_backoff, options_.max_backoff}, failures, prng);
}

void RestartBudget::Refund() {
  if (!charged_.empty()) {
    charged_.pop_back();
  }
}

}  // namespace refit::fleet
