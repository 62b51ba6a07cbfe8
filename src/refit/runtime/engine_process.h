// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The server process of one incarnation, launched by its agent: a port that this run has not used before, an admin key
// of its own, its log, and the whole tree of its processes until that is gone.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/engine/process/child_process.h"
#include "refit/engine/sglang/sglang_engine.h"
#include "refit/exec/watched.h"
#include "refit/runtime/agent_host.h"

namespace refit::runtime {

class EngineProcess {
 public:
  // launch_number names its log and key files. options must outlive this.
  EngineProcess(const AgentHostOptions& options, std::uint32_t launch_number, std::string port_list);

  // Starts it and waits until it answers; how it is reached. CANCELLED where Kill or ShutDown came first. on_end is
  // called once if the process ends, on a thread of its own. Thread: one, once.
  Result<engine::sglang::SglangOptions> Launch(std::function<void(const std::string& exit_text)> on_end);

  // Both return whether the whole tree is gone; nothing is started any more. Thread: any, also during Launch.
  bool ShutDown(Instant deadline);  // SIGTERM, then SIGKILL at the deadline
  bool Kill(Instant deadline = kNever);
  int pid() const;  // 0: not started

 private:
  using Child = std::shared_ptr<engine::process::ChildProcess>;
  struct State {
    Child child;
    bool over = false;
  };

  Status LaunchReference(engine::sglang::SglangOptions& reached);
  Status LaunchSglang(engine::sglang::SglangOptions& reached);
  Result<Child> Start(engine::process::ChildOptions options);
  Child End();  // what runs, if anything does

  const AgentHostOptions& options_;
  const std::string name_;  // of its files
  const std::string port_list_;
  std::function<void(const std::string&)> on_end_;
  mutable exec::Watched<State> state_;
};

}  // namespace refit::runtime
