// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/session_gate.h"

namespace refit::engine::reference {

Gate::Admission Gate::Enter(const std::string& rid) {
  std::unique_lock lock(mutex_);
  const auto held = held_.insert(held_.end(), Held{rid});
  changed_.wait(lock, [this] { return open() || stopped_; });
  const bool aborted = held->aborted;
  held_.erase(held);
  if (stopped_) {
    return Admission::kStopped;
  }
  if (aborted) {
    return Admission::kAborted;
  }
  ++readers_;
  return Admission::kAdmitted;
}

bool Gate::TryEnter() {
  const std::lock_guard lock(mutex_);
  if (!open() || stopped_) {
    return false;
  }
  ++readers_;
  return true;
}

void Gate::Leave() {
  {
    const std::lock_guard lock(mutex_);
    --readers_;
  }
  changed_.notify_all();
}

void Gate::TakeCondition(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !condition_held_ || stopped_; });
  condition_held_ = true;
}

void Gate::Pause(Drain drain, Duration poll, const std::function<void()>& tell_scheduler) {
  std::unique_lock lock(mutex_);
  TakeCondition(lock);
  paused_ = true;
  while (drain == Drain::kAbort && !stopped_) {
    for (Held& request : held_) {
      request.aborted = true;
    }
    lock.unlock();
    tell_scheduler();
    lock.lock();
    if (readers_ == 0 && !writing_) {
      break;
    }
    // The server looks once a second and is not woken by the last request.
    changed_.wait_for(lock, poll, [this] { return stopped_; });
  }
  if (drain == Drain::kNo) {
    tell_scheduler();  // the scheduler hears of the pause before any later call
  }
  condition_held_ = false;
  lock.unlock();
  changed_.notify_all();
}

void Gate::Continue(const std::function<void()>& resume) {
  {
    std::unique_lock lock(mutex_);
    TakeCondition(lock);
    paused_ = false;
    resume();
    condition_held_ = false;
  }
  changed_.notify_all();
}

bool Gate::paused() const {
  const std::lock_guard lock(mutex_);
  return paused_;
}

std::size_t Gate::held_count() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}

void Gate::AbortHeld(std::string_view rid_prefix) {
  const std::lock_guard lock(mutex_);
  for (Held& request : held_) {
    request.aborted = request.aborted || request.rid.starts_with(rid_prefix);
  }
}

void Gate::RunUpdate(const std::function<void()>& update) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !condition_held_ || stopped_; });
  const bool under_pause = paused_;
  if (under_pause) {
    condition_held_ = true;
  } else {
    ++writers_waiting_;
    changed_.wait(lock, [this] { return (readers_ == 0 && !writing_) || stopped_; });
    --writers_waiting_;
    writing_ = true;
  }
  const bool stopped = stopped_;
  lock.unlock();
  if (!stopped) {
    update();
  }
  lock.lock();
  (under_pause ? condition_held_ : writing_) = false;
  lock.unlock();
  changed_.notify_all();
}

void Gate::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace refit::engine::reference
