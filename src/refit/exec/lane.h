// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A thread that runs tasks in order: for work that must not block a loop (files, engine calls).

#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "refit/base/status.h"
#include "refit/exec/mailbox.h"

namespace refit::exec {

class Lane {
 public:
  explicit Lane(std::size_t capacity) : tasks_(capacity), thread_([this] { Run(); }) {}
  // Runs what is queued, then ends.
  ~Lane() {
    tasks_.Close();
    thread_.join();
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Thread: any. RESOURCE_EXHAUSTED when full.
  Status Post(std::function<void()> task) { return tasks_.Push(std::move(task)); }

 private:
  void Run() {
    while (auto task = tasks_.Pop(kNever)) {
      (*task)();
    }
  }

  Mailbox<std::function<void()>> tasks_;
  std::thread thread_;
};

}  // namespace refit::exec
