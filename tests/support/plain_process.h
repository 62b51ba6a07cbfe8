// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A process that nobody supervises: whoever is killed in here leaves whatever it leaves (engine/process would end it).

#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/exec/clock.h"

extern char** environ;  // NOLINT: POSIX wants it declared by hand

namespace refit::test {

// As /proc names it: R, S, T for stopped, Z for a zombie; 0: there is none.
inline char StateOf(int pid) {
  std::ifstream stat(StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(stat, text);  // a process that ends meanwhile is a failed read
  const std::size_t name_end = text.rfind(") ");
  return name_end == std::string::npos ? '\0' : text[name_end + 2];
}

// A zombie of somebody else's is gone for our purpose.
inline bool Gone(int pid) {
  const char state = StateOf(pid);
  return state == '\0' || state == 'Z' || state == 'X';
}

class PlainProcess {
 public:
  PlainProcess(std::vector<std::string> arguments, std::string log_path) : log_path_(std::move(log_path)) {
    std::vector<char*> pointers;
    for (std::string& argument : arguments) {
      pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    EXPECT_EQ(posix_spawn(&pid_, pointers[0], &files, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
  }
  ~PlainProcess() { Kill(); }
  PlainProcess(const PlainProcess&) = delete;
  PlainProcess& operator=(const PlainProcess&) = delete;

  int pid() const { return pid_; }
  // kill -9, nothing else.
  void Kill() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  // What follows `prefix` on the first line that holds it; empty at the deadline.
  std::string Await(const std::string& prefix, Instant deadline) const {
    std::string rest;
    exec::WaitUntil(
        [&] {
          std::ifstream file(log_path_);
          for (std::string line; std::getline(file, line) && !file.eof();) {
            if (const std::size_t at = line.find(prefix); at != std::string::npos) {
              rest = line.substr(at + prefix.size());
              return true;
            }
          }
          return false;
        },
        deadline);
    return rest;
  }

 private:
  const std::string log_path_;
  pid_t pid_ = -1;
};

}  // namespace refit::test
