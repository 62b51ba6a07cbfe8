// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/process/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/engine/process/supervisor.h"
#include "refit/exec/clock.h"
#include "refit/exec/watched.h"

extern char** environ;  // NOLINT: POSIX wants it declared by hand

namespace refit::engine::process {
namespace {

constexpr std::size_t kLogTailLines = 5;
constexpr std::size_t kLogTailBytes = 2000;
constexpr std::size_t kReadyLineLimit = 64 * 1024;
constexpr Duration kOrphansDeadline = std::chrono::seconds(2);
constexpr Duration kForever = std::chrono::hours(24 * 365);

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

// A condition variable cannot wait for ever by kNever.
Instant Bounded(Instant deadline) { return std::min(deadline, exec::Now() + kForever); }

std::string ExitText(int status) {
  return WIFSIGNALED(status) ? StrCat("signal ", WTERMSIG(status)) : StrCat("exit ", WEXITSTATUS(status));
}

std::optional<News> ReadNews(int link) {
  News news{};
  ssize_t got;
  do {
    got = recv(link, &news, sizeof news, MSG_WAITALL);
  } while (got < 0 && errno == EINTR);
  return got == sizeof news ? std::optional(news) : std::nullopt;
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

struct ChildProcess::Owned {
  struct State {
    bool ended = false;
    int exit_status = 0;
    bool supervised = true;  // the supervisor lives, and has not said yet that everything is gone
    bool gone = false;
  };
  ~Owned();
  void Listen();  // to the supervisor, until it has ended
  bool Kill(Instant deadline);

  pid_t pid = -1;
  pid_t supervisor = -1;
  int link = -1;
  int ready_file = -1;  // the log, read from where this child began
  std::string log_path;
  std::string ready_prefix;
  std::string pending;
  std::function<void(const std::string&)> on_end;
  mutable exec::Watched<State> state;
  std::thread listener;
};

ChildProcess::Owned::~Owned() {
  if (listener.joinable()) {
    Kill(kNever);
    listener.join();
  } else if (supervisor > 0) {
    waitpid(supervisor, nullptr, 0);  // it started nothing
  }
  for (const int file : {link, ready_file}) {
    if (file >= 0) {
      close(file);
    }
  }
}

void ChildProcess::Owned::Listen() {
  while (const auto news = ReadNews(link)) {
    if (news->kind == NewsKind::kEnded) {
      state.With([&news](State& now) {
        now.ended = true;
        now.exit_status = news->value;
      });
      if (on_end) {
        on_end(ExitText(news->value));
      }
    } else if (news->kind == NewsKind::kGone) {
      state.With([](State& now) { now.gone = true; });
    }
  }
  while (waitpid(supervisor, nullptr, 0) < 0 && errno == EINTR) {
  }
  const State last = state.With([](State& now) { return now; });
  if (!last.gone) {  // somebody killed the supervisor, and the kernel its child with it; what else is in the group is
                     // ours
    kill(-pid, SIGKILL);
    const bool gone =
        exec::WaitUntil([this] { return kill(-pid, 0) != 0 && errno == ESRCH; }, exec::Now() + kOrphansDeadline);
    state.With([gone](State& now) {
      now.gone = gone;
      now.exit_status = now.ended ? now.exit_status : SIGKILL;
      now.ended = true;
    });
  }
  if (!last.ended && on_end) {
    on_end(ExitText(SIGKILL));
  }
  state.With([](State& now) { now.supervised = false; });
}

bool ChildProcess::Owned::Kill(Instant deadline) {
  shutdown(link, SHUT_WR);  // its end is the order
  static_cast<void>(state.Wait([](const State& now) { return !now.supervised; }, Bounded(deadline)));
  return state.With([](const State& now) { return now.gone; });
}

ChildProcess::ChildProcess(std::unique_ptr<Owned> owned) : owned_(std::move(owned)) {}
ChildProcess::ChildProcess(ChildProcess&& other) noexcept = default;
ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept = default;
ChildProcess::~ChildProcess() = default;

Result<ChildProcess> ChildProcess::Start(const ChildOptions& options) {
  if (options.arguments.empty() || options.log_path.empty()) {
    return InvalidArgument("a child process needs a program and a log file");
  }
  auto owned = std::make_unique<Owned>();
  owned->log_path = options.log_path;
  owned->ready_prefix = options.ready_prefix;
  owned->on_end = options.on_end;
  const int log = open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    return Unavailable(StrCat("log file ", options.log_path, ": ", ErrorText(errno)));
  }
  // Read from where this child's output will begin: the file may hold earlier lives.
  owned->ready_file = open(options.log_path.c_str(), O_RDONLY | O_CLOEXEC);
  int link[2];
  if (owned->ready_file < 0 || lseek(owned->ready_file, 0, SEEK_END) < 0 ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) != 0) {
    const int error = errno;
    close(log);
    return Unavailable(StrCat("log file ", options.log_path, ": ", ErrorText(error)));
  }
  owned->link = link[0];
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = MergedEnvironment(options.environment);
  const std::vector<char*> argument_pointers = Pointers(arguments);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const SupervisorTask task{argument_pointers.data(), environment_pointers.data(), log, link[1]};

  owned->supervisor = fork();
  if (owned->supervisor == 0) {
    Supervise(task);
  }
  const int fork_error = errno;
  close(log);
  close(link[1]);
  const auto news = owned->supervisor > 0 ? ReadNews(owned->link) : std::nullopt;
  if (!news.has_value() || news->kind != NewsKind::kStarted) {
    const int error = news.has_value() ? news->value : fork_error;
    return NotFound(StrCat("cannot start ", options.arguments[0], ": ", ErrorText(error)));
  }
  owned->pid = news->value;
  owned->listener = std::thread([raw = owned.get()] { raw->Listen(); });
  return ChildProcess(std::move(owned));
}

int ChildProcess::pid() const { return owned_ == nullptr ? -1 : owned_->pid; }

bool ChildProcess::running() const {
  return owned_ != nullptr && owned_->state.With([](const Owned::State& now) { return !now.ended; });
}

std::string ChildProcess::exit_text() const {
  const Owned::State now = owned_->state.With([](const Owned::State& current) { return current; });
  return now.ended ? ExitText(now.exit_status) : std::string();
}

std::string ChildProcess::LastOutput() const { return LastLines(owned_->log_path); }

std::optional<std::string> ChildProcess::PollReadyLine() {
  const std::string& prefix = owned_->ready_prefix;
  std::string& pending = owned_->pending;
  char chunk[4096];
  for (ssize_t got; (got = read(owned_->ready_file, chunk, sizeof chunk)) > 0;) {
    pending.append(chunk, static_cast<std::size_t>(got));
    for (std::size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      if (end >= prefix.size() && pending.starts_with(prefix)) {
        return pending.substr(prefix.size(), end - prefix.size());
      }
    }
    if (pending.size() > kReadyLineLimit) {
      pending.erase(0, pending.size() - 1);  // a line without end is not ours; its rest cannot match from a start
    }
  }
  return std::nullopt;
}

Result<std::string> ChildProcess::WaitReady(Instant deadline) {
  if (owned_->ready_prefix.empty()) {
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
    return Unavailable(StrCat("the process ended (", exit_text(), ") before it was ready: ", LastOutput()),
                       StrCat("see ", owned_->log_path));
  }
  return DeadlineExceeded(StrCat("process ", pid(), " printed no line \"", owned_->ready_prefix, "…\" in time"),
                          StrCat("see ", owned_->log_path));
}

void ChildProcess::Ask() { send(owned_->link, &kTerminate, sizeof kTerminate, MSG_NOSIGNAL); }

Status ChildProcess::Terminate(Instant deadline) {
  if (owned_ == nullptr) {
    return OkStatus();
  }
  Ask();
  const bool ended = owned_->state.Wait([](const Owned::State& now) { return now.ended; }, Bounded(deadline));
  Kill();
  return ended ? OkStatus() : DeadlineExceeded(StrCat("process ", pid(), " did not end in time and was killed"));
}

bool ChildProcess::Kill(Instant deadline) { return owned_ == nullptr || owned_->Kill(deadline); }

}  // namespace refit::engine::process
