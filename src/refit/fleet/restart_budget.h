// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How often and how soon a slot is launched again (RX-QUAR-04): at most max_restarts within a sliding window, after a
// back-off that doubles, with jitter. A rolled-back recovery consumes it like any other restart.

#pragma once

#include <cstdint>
#include <deque>

#include "refit/base/prng.h"
#include "refit/base/time.h"

namespace refit::fleet {

struct RestartOptions {
  std::uint32_t max_restarts = 3;
  Duration window{};
  Duration first_backoff{};
  Duration max_backoff{};
};

class RestartBudget {
 public:
  explicit RestartBudget(RestartOptions options) : options_(options) {}

  // Charges one restart. The instant at which the slot may be launched; kNever when its budget is spent: retire it.
  Instant Charge(Instant now, Prng& prng);
  void Refund();  // the last charge: the failure was not this slot's (RX-QUAR-05, -08)

 private:
  RestartOptions options_;
  std::deque<Instant> charged_;  // within the window
};

}  // namespace refit::fleet
