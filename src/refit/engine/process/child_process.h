// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A child process with its output in a log file: how agents start engines, and the demo starts roles. Argument vector
// only, never a shell. It runs under a supervisor (supervisor.h), in a group of its own: nothing that it started
// outlives it, and it does not outlive us.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"

namespace refit::engine::process {

struct ChildOptions {
  std::vector<std::string> arguments;    // [0] is the program's path
  std::vector<std::string> environment;  // "NAME=value", added to ours
  std::string log_path;                  // stdout and stderr, appended
  std::string ready_prefix;              // a line of the output that starts so means "ready"; empty: no waiting
  // It ended, by itself or not. Thread: one of the child's own; must be short.
  std::function<void(const std::string& exit_text)> on_end{};
};

// Owns the child: the destructor kills the whole tree of its processes and reaps it. When this process ends in any
// other way, kill -9 included, the supervisor does the same. Thread: any, but for WaitReady, which one at a time may
// call.
class ChildProcess {
 public:
  static Result<ChildProcess> Start(const ChildOptions& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // The rest of the ready line after the prefix. DEADLINE_EXCEEDED, or UNAVAILABLE with the exit status and the last
  // lines of the log when the child ended first.
  Result<std::string> WaitReady(Instant deadline);

  int pid() const;
  bool running() const;
  std::string exit_text() const;       // "exit 1", "signal 9"; empty while running
  std::string LastOutput() const;      // the last lines of the log, on one line
  void Ask();                          // SIGTERM; returns at once
  Status Terminate(Instant deadline);  // SIGTERM, then Kill at the deadline. Idempotent
  // SIGKILL to the whole tree. True once it is reaped; false at the deadline, it may be later. Idempotent.
  bool Kill(Instant deadline = kNever);

 private:
  struct Owned;
  explicit ChildProcess(std::unique_ptr<Owned> owned);
  // Reads what the child wrote since; the rest of the ready line once it is whole.
  std::optional<std::string> PollReadyLine();
  std::unique_ptr<Owned> owned_;
};

}  // namespace refit::engine::process
