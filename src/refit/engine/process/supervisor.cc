// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/process/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "refit/base/mutant.h"

namespace refit::engine::process {
namespace {

constexpr int kKillPollMilliseconds = 20;  // between two looks for children that were adopted meanwhile
constexpr int kFirstOwnDescriptor = 3;

struct Child {
  pid_t pid = -1;  // and the id of its group
  bool reaped = false;
};

void Tell(int link, NewsKind kind, std::int32_t value) {
  const News news{kind, value};
  ssize_t sent;
  do {
    sent = send(link, &news, sizeof news, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);  // an owner that is gone hears nothing
}

// stdin, stdout and stderr as the child gets them, and nothing else of our owner's but `link`: what it has open must
// not outlive it, nor keep another supervisor's link open. Returns the link's new number.
int KeepOnly(int log, int link) {
  link = fcntl(link, F_DUPFD_CLOEXEC, kFirstOwnDescriptor);
  log = fcntl(log, F_DUPFD_CLOEXEC, kFirstOwnDescriptor);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (link < 0 || log < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
      dup2(log, STDERR_FILENO) < 0) {
    return -1;
  }
  if (link > kFirstOwnDescriptor) {
    close_range(kFirstOwnDescriptor, static_cast<unsigned>(link) - 1, 0);
  }
  close_range(static_cast<unsigned>(link) + 1, ~0U, 0);
  return link;
}

[[noreturn]] void BecomeChild(const SupervisorTask& task, pid_t supervisor, int report) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // should somebody kill the supervisor
  if (getppid() != supervisor) {
    _exit(127);
  }
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(task.arguments[0], task.arguments, task.environment);
  const int error = errno;
  const ssize_t written = write(report, &error, sizeof error);
  _exit(written == sizeof error ? 127 : 126);
}

// The error of a failed exec; 0 once exec closed the pipe.
int ReadExecError(int report) {
  int error = 0;
  ssize_t got;
  do {
    got = read(report, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

// errno's value where it could not be started.
int StartChild(const SupervisorTask& task, Child& child) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return errno;
  }
  const pid_t self = getpid();
  child.pid = fork();
  if (child.pid == 0) {
    BecomeChild(task, self, report[1]);
  }
  const int fork_error = errno;
  close(report[1]);
  const int error = child.pid < 0 ? fork_error : ReadExecError(report[0]);
  close(report[0]);
  if (error == 0) {
    setpgid(child.pid, child.pid);  // fails where it has exec'ed, which set it itself
  }
  return error;
}

// Reaps whoever ended. False once no child is left.
bool Reap(Child& child, int link) {
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno != EINTR) {
      return false;
    }
    if (pid == 0) {
      return true;
    }
    if (pid == child.pid) {
      child.reaped = true;
      Tell(link, NewsKind::kEnded, status);
    }
  }
}

// The parent of a process, from "pid (any name) S ppid …"; 0 where it cannot be read.
pid_t ParentOf(int proc, const char* process) {
  char path[64] = {};
  const std::size_t length = strnlen(process, sizeof path);
  constexpr char kStat[] = "/stat";
  if (length + sizeof kStat > sizeof path) {
    return 0;
  }
  std::memcpy(path, process, length);
  std::memcpy(path + length, kStat, sizeof kStat);
  char text[512];
  const int file = openat(proc, path, O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) {
    close(file);
  }
  if (got <= 0) {
    return 0;
  }
  text[got] = '\0';
  const char* at = std::strrchr(text, ')');  // a name may hold anything
  pid_t parent = 0;
  for (at = at == nullptr || std::strlen(at) < 4 ? "" : at + 4; *at >= '0' && *at <= '9'; ++at) {
    parent = parent * 10 + (*at - '0');
  }
  return parent;
}

// Whoever's parent we are, also what changed its group or session: the orphans of those that were killed before are
// ours now.
void KillChildren() {
  const pid_t self = getpid();
  const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (proc < 0) {
    return;
  }
  alignas(dirent64) char entries[8192];
  for (ssize_t got; (got = getdents64(proc, entries, sizeof entries)) > 0;) {
    for (ssize_t at = 0; at < got;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      pid_t pid = 0;
      for (const char* digit = entry->d_name; *digit >= '0' && *digit <= '9'; ++digit) {
        pid = pid * 10 + (*digit - '0');
      }
      if (pid > 0 && ParentOf(proc, entry->d_name) == self) {
        kill(pid, SIGKILL);
      }
    }
  }
  close(proc);
}

void Drain(int signals) {
  signalfd_siginfo info;
  while (read(signals, &info, sizeof info) > 0) {
  }
}

// Level by level: whoever is killed leaves its own children to us.
void KillTree(Child& child, int link, int signals) {
  if (!child.reaped) {
    kill(-child.pid, SIGKILL);
  }
  while (Reap(child, link)) {
    KillChildren();
    pollfd news{.fd = signals, .events = POLLIN, .revents = 0};
    poll(&news, 1, kKillPollMilliseconds);
    Drain(signals);
  }
}

// Until the child has ended, or its owner wants it to.
void Watch(Child& child, int link, int signals) {
  while (!child.reaped) {
    pollfd news[] = {{.fd = link, .events = POLLIN, .revents = 0}, {.fd = signals, .events = POLLIN, .revents = 0}};
    if (poll(news, 2, -1) < 0 && errno != EINTR) {
      return;
    }
    if (news[1].revents != 0) {
      Drain(signals);
      Reap(child, link);
    }
    if (news[0].revents != 0 && !child.reaped) {
      char order = 0;
      const ssize_t got = recv(link, &order, 1, 0);
      if (got == 0 || (got < 0 && errno != EINTR)) {
        return;
      }
      if (got == 1 && order == kTerminate) {
        kill(-child.pid, SIGTERM);
      }
    }
  }
}

}  // namespace

void Supervise(const SupervisorTask& task) {
  setsid();  // no signal that is meant for our owner or for the child
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  signal(SIGCHLD, SIG_DFL);  // ignored, nobody would tell how the child ended
  const int link = KeepOnly(task.log, task.link);
  const int signals = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
  prctl(PR_SET_NAME, "refit-owner");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Child child;
  const int error = link < 0 || signals < 0 ? errno : StartChild(task, child);
  if (error != 0) {
    Tell(link < 0 ? task.link : link, NewsKind::kCannotStart, error);
    _exit(1);
  }
  Tell(link, NewsKind::kStarted, child.pid);
  Watch(child, link, signals);
  if (REFIT_MUTANT("RC-KILL-06/no-guard", true, false)) {
    KillTree(child, link, signals);
    Tell(link, NewsKind::kGone, 0);
  }
  _exit(0);
}

}  // namespace refit::engine::process
