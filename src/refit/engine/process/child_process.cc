// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/process/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/exec/clock.h"

extern char** environ;  // NOLINT: POSIX wants it declared by hand

namespace refit::engine::process {
namespace {

constexpr std::size_t kLogTailLines = 5;
constexpr std::size_t kLogTailBytes = 2000;
constexpr std::size_t kReadyLineLimit = 64 * 1024;

std::string ErrorText(int error) { return std::strerror(error); }

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Ours, with `added` in place of a variable of the same name.
std::vector<std::string> MergedEnvironment(const std::vector<std::string>& added) {
  std::vector<std::string> merged = added;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    bool replaced = false;
    for (const std::string& mine : added) {
      replaced = replaced || (!name.empty() && mine.starts_with(name));
    }
    if (!replaced) {
      merged.emplace_back(variable);
    }
  }
  return merged;
}

// In the child, between fork and exec: async-signal-safe calls only, since another thread may have held any lock.
[[noreturn]] void BecomeChild(char* const* arguments, char* const* environment, int log, int report, pid_t parent) {
  setpgid(0, 0);
  // The kernel sends this when the *thread* that forked ends, not the process.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(127);  // the parent ended before the line above
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0) {
    execve(arguments[0], arguments, environment);
  }
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  _exit(written == sizeof error ? 127 : 126);
}

// The watching process: ends the group when we end, however that is. Async-signal-safe calls only.
// armed: told once no signal to our group can reach it any more.
[[noreturn]] void WatchGroup(pid_t group, int line, int armed) {
  setsid();  // no signal that is meant for us or for the group
  const char byte_of_news = 1;
  if (write(armed, &byte_of_news, 1) != 1) {
    _exit(1);
  }
  // What we have open must not outlive us, nor keep another watcher's line open.
  close_range(0, static_cast<unsigned>(line) - 1, 0);
  close_range(static_cast<unsigned>(line) + 1, ~0U, 0);
  char byte = 0;
  ssize_t got;
  do {
    got = read(line, &byte, 1);
  } while (got < 0 && errno == EINTR);
  kill(-group, SIGKILL);
  _exit(0);
}

// Runs fork() for every caller, on a thread that never ends while the process lives.
class Forker {
 public:
  static Forker& Instance() {
    static Forker* const forker = new Forker;  // never destroyed: its thread may not outlive it, nor end early
    return *forker;
  }

  // `in_child` must not return. Returns fork's result, with errno's value on failure.
  std::pair<pid_t, int> Fork(const std::function<void()>& in_child) {
    const std::lock_guard one_at_a_time(callers_);
    std::unique_lock lock(mutex_);
    in_child_ = &in_child;
    changed_.notify_all();
    changed_.wait(lock, [this] { return in_child_ == nullptr; });
    return {pid_, error_};
  }

 private:
  Forker() { std::thread(&Forker::Run, this).detach(); }
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return in_child_ != nullptr; });
      pid_ = fork();
      error_ = errno;
      if (pid_ == 0) {
        (*in_child_)();
        _exit(127);
      }
      in_child_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* in_child_ = nullptr;
  pid_t pid_ = -1;
  int error_ = 0;
};

// The error of a failed exec; 0 once exec closed the pipe.
int ReadExecError(int report) {
  int error = 0;
  ssize_t got;
  do {
    got = read(report, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

std::string LastLines(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return {};
  }
  const off_t size = lseek(fd, 0, SEEK_END);
  const off_t start = size > static_cast<off_t>(kLogTailBytes) ? size - static_cast<off_t>(kLogTailBytes) : 0;
  std::string tail(kLogTailBytes, '\0');
  const ssize_t got = pread(fd, tail.data(), tail.size(), start);
  close(fd);
  tail.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  while (tail.ends_with('\n')) {
    tail.pop_back();
  }
  std::size_t begin = tail.size();
  for (std::size_t lines = 0; lines < kLogTailLines && begin != 0 && begin != std::string::npos; ++lines) {
    begin = tail.rfind('\n', begin - 1);
  }
  tail.erase(0, begin == std::string::npos || begin == 0 ? 0 : begin + 1);
  for (char& c : tail) {
    c = c == '\n' ? '|' : static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // a message is one line
  }
  return tail;
}

}  // namespace

Result<ChildProcess> ChildProcess::Start(const ChildOptions& options) {
  if (options.arguments.empty() || options.log_path.empty()) {
    return InvalidArgument("a child process needs a program and a log file");
  }
  ChildProcess child;
  child.log_path_ = options.log_path;
  child.ready_prefix_ = options.ready_prefix;
  const int log = open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    return Unavailable(StrCat("log file ", options.log_path, ": ", ErrorText(errno)));
  }
  // Read from where this child's output will begin: the file may hold earlier lives.
  child.ready_fd_ = open(options.log_path.c_str(), O_RDONLY | O_CLOEXEC);
  int report[2];
  if (child.ready_fd_ < 0 || lseek(child.ready_fd_, 0, SEEK_END) < 0 || pipe2(report, O_CLOEXEC) != 0) {
    const int error = errno;
    close(log);
    return Unavailable(StrCat("log file ", options.log_path, ": ", ErrorText(error)));
  }
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = MergedEnvironment(options.environment);
  const std::vector<char*> argument_pointers = Pointers(arguments);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const pid_t self = getpid();

  const auto [pid, fork_error] = Forker::Instance().Fork(
      [&] { BecomeChild(argument_pointers.data(), environment_pointers.data(), log, report[1], self); });
  close(log);
  close(report[1]);
  const int error = pid < 0 ? fork_error : ReadExecError(report[0]);
  close(report[0]);
  if (pid > 0) {
    child.pid_ = pid;
    setpgid(pid, pid);  // so that the group exists for us, too; fails once the child has exec'ed, which set it itself
  }
  if (error != 0) {
    return NotFound(StrCat("cannot start ", options.arguments[0], ": ", ErrorText(error)));  // ~ChildProcess reaps
  }
  REFIT_RETURN_IF_ERROR(child.StartWatcher());
  return child;
}

Status ChildProcess::StartWatcher() {
  int line[2];
  if (pipe2(line, O_CLOEXEC) != 0) {
    return Unavailable(StrCat("cannot watch process ", pid_, ": ", ErrorText(errno)));
  }
  int armed[2];
  if (pipe2(armed, O_CLOEXEC) != 0) {
    const int error = errno;
    close(line[0]);
    close(line[1]);
    return Unavailable(StrCat("cannot watch process ", pid_, ": ", ErrorText(error)));
  }
  const pid_t group = pid_;
  const auto [pid, error] = Forker::Instance().Fork([&] { WatchGroup(group, line[0], armed[1]); });
  close(line[0]);
  close(armed[1]);
  watcher_pid_ = pid;
  watcher_line_ = line[1];
  // Not before it has left our group: whoever kills that group at once would take the watcher along.
  char byte = 0;
  ssize_t got;
  do {
    got = read(armed[0], &byte, 1);
  } while (got < 0 && errno == EINTR);
  close(armed[0]);
  return pid > 0 && got == 1 ? OkStatus() : Unavailable(StrCat("cannot watch process ", pid_, ": ", ErrorText(error)));
}

void ChildProcess::StopWatcher() {
  if (watcher_pid_ > 0) {
    kill(watcher_pid_, SIGKILL);  // not by its line: then it would kill a group that may be another's by now
    while (waitpid(watcher_pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (watcher_line_ >= 0) {
    close(watcher_line_);
  }
  watcher_pid_ = -1;
  watcher_line_ = -1;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      watcher_pid_(std::exchange(other.watcher_pid_, -1)),
      watcher_line_(std::exchange(other.watcher_line_, -1)),
      ready_fd_(std::exchange(other.ready_fd_, -1)),
      exit_status_(other.exit_status_),
      ended_(std::exchange(other.ended_, true)),
      log_path_(std::move(other.log_path_)),
      ready_prefix_(std::move(other.ready_prefix_)),
      pending_(std::move(other.pending_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(watcher_pid_, other.watcher_pid_);
  std::swap(watcher_line_, other.watcher_line_);
  std::swap(ready_fd_, other.ready_fd_);
  std::swap(exit_status_, other.exit_status_);
  std::swap(ended_, other.ended_);
  std::swap(log_path_, other.log_path_);
  std::swap(ready_prefix_, other.ready_prefix_);
  std::swap(pending_, other.pending_);
  return *this;
}

ChildProcess::~ChildProcess() {
  Kill();
  if (ready_fd_ >= 0) {
    close(ready_fd_);
  }
}

void ChildProcess::Reap(int options) {
  if (ended_ || pid_ <= 0) {
    return;
  }
  int status = 0;
  pid_t got;
  do {
    got = waitpid(pid_, &status, options);
  } while (got < 0 && errno == EINTR);
  if (got != 0) {  // it ended, or (ECHILD) somebody else reaped it
    ended_ = true;
    exit_status_ = got > 0 ? status : 0;
  }
}

bool ChildProcess::running() {
  Reap(WNOHANG);
  return pid_ > 0 && !ended_;
}

std::string ChildProcess::exit_text() {
  if (running()) {
    return {};
  }
  return WIFSIGNALED(exit_status_) ? StrCat("signal ", WTERMSIG(exit_status_))
                                   : StrCat("exit ", WEXITSTATUS(exit_status_));
}

std::string ChildProcess::LastOutput() const { return LastLines(log_path_); }

std::optional<std::string> ChildProcess::PollReadyLine() {
  char chunk[4096];
  for (ssize_t got; (got = read(ready_fd_, chunk, sizeof chunk)) > 0;) {
    pending_.append(chunk, static_cast<std::size_t>(got));
    for (std::size_t end; (end = pending_.find('\n')) != std::string::npos; pending_.erase(0, end + 1)) {
      if (end >= ready_prefix_.size() && pending_.starts_with(ready_prefix_)) {
        return pending_.substr(ready_prefix_.size(), end - ready_prefix_.size());
      }
    }
    if (pending_.size() > kReadyLineLimit) {
      pending_.erase(0, pending_.size() - 1);  // a line without end is not ours; its rest cannot match from a start
    }
  }
  return std::nullopt;
}

Result<std::string> ChildProcess::WaitReady(Instant deadline) {
  if (ready_prefix_.empty()) {
    return std::string();
  }
  std::optional<std::string> line;
  bool ended = false;
  exec::WaitUntil(
      [&] {
        ended = !running();  // asked first: all that it wrote is in the log when we read
        line = PollReadyLine();
        return line.has_value() || ended;
      },
      deadline);
  if (line) {
    return *std::move(line);
  }
  if (ended) {
    return Unavailable(StrCat("the process ended (", exit_text(), ") before it was ready: ", LastLines(log_path_)),
                       StrCat("see ", log_path_));
  }
  return DeadlineExceeded(StrCat("process ", pid_, " printed no line \"", ready_prefix_, "…\" in time"),
                          StrCat("see ", log_path_));
}

Status ChildProcess::Terminate(Instant deadline) {
  if (running()) {
    kill(-pid_, SIGTERM);
    if (!exec::WaitUntil([this] { return !running(); }, deadline)) {
      Kill();
      return DeadlineExceeded(StrCat("process ", pid_, " did not end in time and was killed"));
    }
  }
  Kill();  // what the child left in its group
  return OkStatus();
}

void ChildProcess::Kill() {
  if (pid_ <= 0) {
    return;
  }
  StopWatcher();
  kill(-pid_, SIGKILL);  // the group may outlive its leader; no such group is fine
  Reap(0);
}

}  // namespace refit::engine::process
