// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/cli/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "refit/base/check.h"
#include "refit/cli/command.h"

namespace refit::cli {
namespace {

// What a signal handler may touch. NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
volatile sig_atomic_t on_interrupt = static_cast<int>(OnInterrupt::kExit);
volatile sig_atomic_t interrupt_count = 0;
int pipe_ends[2] = {-1, -1};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void WriteAll(int file, std::string_view text) { static_cast<void>(!write(file, text.data(), text.size())); }

void OnSignal(int) {
  const int saved_errno = errno;
  const bool first = interrupt_count == 0;
  interrupt_count = 1;
  switch (static_cast<OnInterrupt>(on_interrupt)) {
    case OnInterrupt::kStop:
      if (first) {
        WriteAll(pipe_ends[1], "!");
        errno = saved_errno;
        return;
      }
      break;
    case OnInterrupt::kExitWithJson:
      WriteAll(STDOUT_FILENO,
               "{\"error\": {\"code\": \"CANCELLED\", \"message\": \"interrupted\", "
               "\"remedy\": \"run it again\", \"residues\": []}}\n");
      break;
    case OnInterrupt::kExit: WriteAll(STDERR_FILENO, "\nrefit: interrupted\n"); break;
  }
  _exit(kInterrupted);
}

}  // namespace

void SetOnInterrupt(OnInterrupt what) {
  if (pipe_ends[0] < 0) {
    REFIT_CHECK(pipe2(pipe_ends, O_CLOEXEC) == 0, "no file descriptor is left for a pipe");
    struct sigaction action{};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      sigaction(signal, &action, nullptr);
    }
  }
  on_interrupt = static_cast<int>(what);
}

bool Interrupted() { return interrupt_count != 0; }

void WaitForInterrupt() {
  char byte = 0;
  while (read(pipe_ends[0], &byte, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace refit::cli
