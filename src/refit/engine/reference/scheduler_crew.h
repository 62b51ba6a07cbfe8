// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One thread per TP rank, kept for the engine's life: rank work runs on all of them at once. Rank 0's runs on the
// caller.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace refit::engine::reference {

// Thread: one caller at a time.
class RankCrew {
 public:
  explicit RankCrew(std::size_t rank_count);
  ~RankCrew();
  RankCrew(const RankCrew&) = delete;
  RankCrew& operator=(const RankCrew&) = delete;

  // work(rank) for every rank; returns when all are done.
  void RunOnAll(const std::function<void(std::size_t rank)>& work);

 private:
  void Serve(std::size_t rank);

  std::mutex mutex_;
  std::condition_variable called_;
  std::condition_variable finished_;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace refit::engine::reference
