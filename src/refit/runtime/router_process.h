// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The router that a controller starts (settled C9): kept running under one address until this ends. It remembers
// nothing; what it must list it is told again (RC-RTR-04).

#pragma once

#include <string>
#include <thread>
#include <utility>

#include "refit/base/status.h"
#include "refit/exec/watched.h"
#include "refit/router/router_command.h"

namespace refit::runtime {

class RouterProcess {
 public:
  // port_list: of the run; its metrics listen on another port each time.
  RouterProcess(router::RouterCommand command, std::string log_path, std::string port_list);
  ~RouterProcess();  // ends the router; kill -9 of this process does the same
  RouterProcess(const RouterProcess&) = delete;
  RouterProcess& operator=(const RouterProcess&) = delete;

  // Thread: any.
  void Restart();         // it lives and does not answer
  Status status() const;  // OK while the process runs; it may not answer yet
  int pid() const;        // 0: it does not run

 private:
  struct State {
    bool over = false;
    bool ended = false;   // the process that was started last
    bool silent = false;  // the same one is to end
    int pid = 0;
    Status status;
  };

  void Run();
  Status RunOnce();  // until it ends, or is to

  const router::RouterCommand command_;
  const std::string log_path_;
  const std::string port_list_;
  mutable exec::Watched<State> state_;
  std::thread thread_;
};

}  // namespace refit::runtime
