// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A value that several threads change and wait for: the one place besides Mailbox with a condition variable.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "refit/base/time.h"

namespace refit::exec {

template <typename T>
class Watched {
 public:
  Watched() = default;
  explicit Watched(T value) : value_(std::move(value)) {}
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // Runs use(value) alone, then wakes whoever waits. Must be short and must not call back in here.
  template <typename Use>
  decltype(auto) With(Use use) {
    struct Wake {
      std::condition_variable& changed;
      ~Wake() { changed.notify_all(); }
    };
    const std::lock_guard lock(mutex_);
    const Wake wake{changed_};  // under the lock: a waiter may destroy this object as soon as it gets it
    return use(value_);
  }

  // Waits until ready(value), which may also take from it; false at the deadline.
  template <typename Ready>
  bool Wait(Ready ready, Instant deadline) {
    std::unique_lock lock(mutex_);
    const std::chrono::time_point<std::chrono::steady_clock, Duration> until(deadline.time_since_epoch());
    return changed_.wait_until(lock, until, [&] { return ready(value_); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  T value_{};
};

}  // namespace refit::exec
