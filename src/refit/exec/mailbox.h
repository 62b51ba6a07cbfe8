// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A bounded queue between threads. A full one is an error of the pusher, never a wait (concurrency rule 4).

#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/exec/clock.h"

namespace refit::exec {

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(std::size_t capacity) : capacity_(capacity) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Thread: any. RESOURCE_EXHAUSTED when full, CANCELLED when closed.
  Status Push(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) {
        return {StatusCode::kCancelled, "mailbox closed"};
      }
      if (queue_.size() >= capacity_) {
        return ResourceExhausted("mailbox full");
      }
      queue_.push_back(std::move(value));
    }
    arrived_.notify_one();
    return OkStatus();
  }

  // The next value; nothing at the deadline, or when closed and drained. Thread: one consumer.
  std::optional<T> Pop(Instant deadline) {
    std::unique_lock lock(mutex_);
    const auto has_news = [this] { return !queue_.empty() || closed_; };
    if (deadline == kNever) {
      arrived_.wait(lock, has_news);
    } else {
      const std::chrono::time_point<std::chrono::steady_clock, Duration> until(deadline.time_since_epoch());
      arrived_.wait_until(lock, until, has_news);
    }
    if (queue_.empty()) {
      return std::nullopt;
    }
    T value = std::move(queue_.front());
    queue_.pop_front();
    return value;
  }

  // Idempotent; wakes the consumer, which still drains what is there.
  void Close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<T> queue_;
  bool closed_ = false;
};

}  // namespace refit::exec
