// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/scheduler_crew.h"

namespace refit::engine::reference {

RankCrew::RankCrew(std::size_t rank_count) {
  for (std::size_t rank = 1; rank < rank_count; ++rank) {
    threads_.emplace_back([this, rank] { Serve(rank); });
  }
}

RankCrew::~RankCrew() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  called_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void RankCrew::RunOnAll(const std::function<void(std::size_t rank)>& work) {
  if (threads_.empty()) {
    work(0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    busy_ = threads_.size();
    ++round_;
  }
  called_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
}

void RankCrew::Serve(std::size_t rank) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    called_.wait(lock, [&] { return stopping_ || round_ != seen; });
    if (stopping_) {
      return;
    }
    seen = round_;
    const std::function<void(std::size_t)>& work = *work_;
    lock.unlock();
    work(rank);
    lock.lock();
    if (--busy_ == 0) {
      finished_.notify_one();
    }
  }
}

}  // namespace refit::engine::reference
