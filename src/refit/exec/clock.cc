// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/exec/clock.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace refit::exec {

Instant Now() {
  return Instant(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

bool WaitUntil(const std::function<bool()>& ready, Instant deadline) {
  for (int i = 0; i < 200; ++i) {
    if (ready()) {
      return true;
    }
  }
  Duration nap = std::chrono::microseconds(20);
  while (true) {
    if (ready()) {
      return true;
    }
    const Instant now = Now();
    if (now >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::min<Duration>(nap, deadline - now));
    nap = std::min<Duration>(nap * 2, std::chrono::milliseconds(1));
  }
}

}  // namespace refit::exec
