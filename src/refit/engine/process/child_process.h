// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A child process in a group of its own, with its output in a log file: how agents start engines, and the demo starts
// roles. Argument vector only, never a shell. Children are forked by one thread that lives as long as this process:
// PDEATHSIG comes when the forking thread ends, so no caller's thread may be that one.

#pragma once

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
};

// Owns the child: the destructor kills the whole group and reaps it. When this process ends in any other way, the child
// dies at once (PDEATHSIG), and a watching process beside it kills the rest of the group.
// Thread: one at a time.
class ChildProcess {
 public:
  static Result<ChildProcess> Start(const ChildOptions& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // The rest of the ready line after the prefix. DEADLINE_EXCEEDED, or UNAVAILABLE with the exit status and the last
  // lines of the log when the child ended first.
  Result<std::string> WaitReady(Instant deadline);

  int pid() const { return pid_; }
  bool running();                      // reaps when it ended
  std::string exit_text();             // "exit 1", "signal 9"; empty while running
  std::string LastOutput() const;      // the last lines of the log, on one line
  Status Terminate(Instant deadline);  // SIGTERM, then SIGKILL at the deadline; reaps. Idempotent
  void Kill();                         // SIGKILL to the group; reaps. Idempotent

 private:
  ChildProcess() = default;
  // Reads what the child wrote since; the rest of the ready line once it is whole.
  std::optional<std::string> PollReadyLine();
  void Reap(int options);  // waitpid's
  Status StartWatcher();
  void StopWatcher();
  int pid_ = -1;
  int watcher_pid_ = -1;
  int watcher_line_ = -1;  // its end tells the watcher that we ended
  int ready_fd_ = -1;      // the log, read from where this child began
  int exit_status_ = 0;
  bool ended_ = false;
  std::string log_path_;
  std::string ready_prefix_;
  std::string pending_;
};

}  // namespace refit::engine::process
