// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/takeover.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/shared_memory.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"
#include "refit/observe/log.h"

namespace refit::runtime {
namespace {

constexpr Duration kDeathDeadline = std::chrono::seconds(10);  // from SIGKILL until the kernel has ended it
constexpr int kRounds = 5;                                     // lost races for the term before giving up

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t pid)
      : file_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))), error_(file_ < 0 ? errno : 0) {}
  ~ProcessHandle() {
    if (file_ >= 0) {
      close(file_);
    }
  }
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;

  int error() const { return error_; }
  bool AwaitEnd(Duration patience) const {
    const Instant deadline = exec::Now() + patience;
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::max(deadline - exec::Now(), Duration(0)));
      pollfd wait{.fd = file_, .events = POLLIN, .revents = 0};
      const int ready = poll(&wait, 1, static_cast<int>(left.count()));
      if (ready >= 0 || errno != EINTR) {
        return ready > 0;
      }
    }
  }
  int Kill() const { return syscall(SYS_pidfd_send_signal, file_, SIGKILL, nullptr, 0) == 0 ? 0 : errno; }

 private:
  const int file_;
  const int error_;
};

Result<control::JournalState> Replay(store::Store& store) {
  REFIT_ASSIGN_OR_RETURN(const std::vector<std::string> payloads, store.ReadRecords());
  return control::Replay(payloads);
}

Result<Term> TakeTerm(store::Store& store, const TakeoverOptions& options) {
  Status lost;
  for (int round = 0; round < kRounds; ++round) {
    REFIT_ASSIGN_OR_RETURN(const store::Holder holder, store.ReadHolder());
    REFIT_RETURN_IF_ERROR(EndHolder(holder, options.takeover_after));
    auto term = store.TakeTerm(holder.term, ThisHolder(), RunId{exec::RandomId()});
    if (term.has_value() || term.status().code() != StatusCode::kAborted) {
      return term;
    }
    lost = term.status();  // somebody else was faster: he is the holder now
  }
  return lost;
}

}  // namespace

store::Holder ThisHolder() {
  const device::ProcessIdentity self = device::ThisProcess();
  return {.term = {}, .pid = self.pid, .start_time = self.start_time, .boot_id = BootId(), .address = {}};
}

Status EndHolder(const store::Holder& holder, Duration patience) {
  const auto is = [&holder](const store::Holder& other) {
    return holder.pid == other.pid && holder.start_time == other.start_time && holder.boot_id == other.boot_id;
  };
  if (holder.pid == 0 || holder.boot_id != BootId()) {
    return OkStatus();
  }
  const std::string who = StrCat("the controller of term ", holder.term, ", process ", holder.pid);
  if (is(ThisHolder())) {
    return FailedPrecondition(StrCat(who, ", is this process"), "one controller of a process at a time");
  }
  const ProcessHandle process(holder.pid);
  if (process.error() == ESRCH) {
    return OkStatus();
  }
  if (process.error() != 0) {
    return FailedPrecondition(StrCat(who, " cannot be looked at: ", std::strerror(process.error())), "end it by hand");
  }
  // Whoever has the pid now and began at another time is somebody else. After the open: the handle then means nobody
  // else.
  const bool lives = device::IsRunning({holder.pid, holder.start_time});
  if (REFIT_MUTANT("RX-LEAD-05/by-bare-pid", !lives, false) || process.AwaitEnd(patience)) {
    return OkStatus();
  }
  observe::LogWarning(StrCat(who, ", still lives: it is killed"));
  if (const int error = process.Kill(); error != 0 && error != ESRCH) {
    return FailedPrecondition(StrCat(who, " cannot be killed: ", std::strerror(error)),
                              "start this controller as the same user, or end that one by hand");
  }
  if (!process.AwaitEnd(kDeathDeadline)) {
    return DeadlineExceeded(StrCat(who, " was killed and does not end"), "see what it waits for; a disk, perhaps");
  }
  return OkStatus();
}

Result<Reign> TakeOver(const TakeoverOptions& options) {
  Reign reign;
  REFIT_ASSIGN_OR_RETURN(reign.store, store::Store::Open(options.state_directory));
  REFIT_RETURN_IF_ERROR(Replay(*reign.store).status());
  REFIT_ASSIGN_OR_RETURN(reign.term, TakeTerm(*reign.store, options));
  REFIT_ASSIGN_OR_RETURN(control::JournalState state, Replay(*reign.store));
  reign.run = state.run;
  if (state.term != reign.term) {
    return DataLoss(StrCat("the journal ends in term ", state.term, ", taken was ", reign.term),
                    "look at the file and at its disk");
  }
  if (reign.term > Term(1)) {
    reign.recovered = std::move(state);
  }
  return reign;
}

}  // namespace refit::runtime
