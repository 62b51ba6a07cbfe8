// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The SIGBUS guard. The fault of a vanished page is synchronous: it comes on the thread that touched it, so a jump
// target per thread is enough. One process-wide handler is installed at first use and stays; faults outside a guard go
// to whoever handled SIGBUS before, or end the process as before.

#include <setjmp.h>
#include <signal.h>

#include <mutex>

#include "refit/base/check.h"
#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/copy.h"

namespace refit::device {
namespace {

thread_local sigjmp_buf* jump_target = nullptr;
struct sigaction previous_action;  // written once, before the handler can run

void OnSigbus(int signal, siginfo_t* info, void* context) {
  const bool touched_vanished_page = info->si_code == BUS_ADRERR || info->si_code == BUS_MCEERR_AR;
  if (jump_target != nullptr && touched_vanished_page) {
    siglongjmp(*jump_target, 1);
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    // The instruction runs again and ends the process with the signal that a debugger expects. A SIGBUS that somebody
    // sent does not come again by itself, hence raise().
    ::signal(signal, SIG_DFL);
    raise(signal);
  }
}

void InstallOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = &OnSigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;  // never blocked, so that a jump out of it needs no mask to be restored
    sigemptyset(&action.sa_mask);
    REFIT_CHECK(sigaction(SIGBUS, nullptr, &previous_action) == 0, "cannot read the SIGBUS handler");
    REFIT_CHECK(sigaction(SIGBUS, &action, nullptr) == 0, "cannot install the SIGBUS handler");
  });
}

// Apart from GuardMapped so that no local variable lives across the jump. True when touch() came to its end.
[[gnu::noinline]] bool RunGuarded(const std::function<void()>& touch, sigjmp_buf& target) {
  if (sigsetjmp(target, 0) != 0) {
    return false;
  }
  touch();
  return true;
}

}  // namespace

Status GuardMapped(std::string_view what, const std::function<void()>& touch) {
  InstallOnce();
  sigjmp_buf target;
  sigjmp_buf* const outer = jump_target;
  jump_target = REFIT_MUTANT("RC-PAY-10/no-guard", &target, outer);
  const bool finished = RunGuarded(touch, target);
  jump_target = outer;
  if (!finished) {
    return DataLoss(StrCat(what, " vanished while mapped"),
                    "the file was truncated or its owner died; keep it in place until the refit has ended");
  }
  return OkStatus();
}

}  // namespace refit::device
