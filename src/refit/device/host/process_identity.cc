// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Who owns a name in /dev/shm, and whether that process still runs.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

#include "refit/base/check.h"
#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/shared_memory.h"

namespace refit::device {
namespace {

constexpr std::string_view kPrefix = "/refit-";
constexpr std::size_t kMaxNameSize = 200;  // of a file's 255, and far below a descriptor's 512

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

// The number that text begins with, up to a '-' that is taken off too.
template <typename Number>
std::optional<Number> TakeNumber(std::string_view& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || length == text.size() || text[length] != '-' || text.front() == '-') {
    return std::nullopt;
  }
  text.remove_prefix(length + 1);
  return number;
}

struct ProcessState {
  char state = '?';
  std::uint64_t start_time = 0;
};

// Fields 3 and 22 of /proc/<pid>/stat; the name before them may hold anything, ')' and spaces included.
std::optional<ProcessState> StateOf(std::int32_t pid) {
  std::ifstream file(StrCat("/proc/", pid, "/stat"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::size_t at = text.rfind(") ");
  if (at == std::string::npos || at + 2 >= text.size()) {
    return std::nullopt;
  }
  at += 2;
  ProcessState result;
  result.state = text[at];
  for (int field = 3; field < 22; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) {
      return std::nullopt;
    }
    ++at;
  }
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), result.start_time);
  return error == std::errc() ? std::optional(result) : std::nullopt;
}

// "n4026531836-": the pid namespace that the pid in a name counts in. Containers may share /dev/shm but not their pids.
std::string NamespaceTag() {
  struct stat status = {};
  REFIT_CHECK(stat("/proc/self/ns/pid", &status) == 0, "/proc is not mounted");
  return StrCat("n", status.st_ino, "-");
}

}  // namespace

ProcessIdentity ThisProcess() {
  const auto look = [] {
    const auto pid = static_cast<std::int32_t>(getpid());
    const std::optional<ProcessState> state = StateOf(pid);
    REFIT_CHECK(state.has_value(), "/proc is not mounted, or not of this pid namespace");
    return ProcessIdentity{pid, state->start_time};
  };
  static const ProcessIdentity first = look();    // known also when no descriptor is left
  return first.pid == getpid() ? first : look();  // a fork's child is somebody else
}

bool IsRunning(const ProcessIdentity& process) {
  const std::optional<ProcessState> state = StateOf(process.pid);
  if (!state.has_value()) {
    return kill(process.pid, 0) == 0 || errno == EPERM;  // no descriptor is left: nobody is dead because of that
  }
  return state->start_time == process.start_time && state->state != 'Z' && state->state != 'X';
}

std::string OwnedName(std::string_view what) {
  const ProcessIdentity self = ThisProcess();
  const std::string name = StrCat(kPrefix, self.pid, "-", self.start_time, "-", NamespaceTag(), what);
  REFIT_CHECK(OwnerOf(name).has_value(), "the name of shared memory is letters, digits and '-', not too long");
  return name;
}

bool CountsPidsAsWeDo(std::string_view name) {
  const std::optional<ProcessIdentity> owner = OwnerOf(name);
  return owner &&
         name.substr(StrCat(kPrefix, owner->pid, "-", owner->start_time, "-").size()).starts_with(NamespaceTag());
}

std::string IncarnationName(std::string_view what, const Incarnation& incarnation) {
  // torch's manager takes names of at most 59 bytes. 48 bits are enough beside the pid and start time of this process.
  const std::string id = ToHex(incarnation).substr(4, 12);
  return OwnedName(
      StrCat(what, "-", REFIT_MUTANT("RC-PAY-10/one-name-for-two-incarnations", id, std::string("engine"))));
}

std::optional<ProcessIdentity> OwnerOf(std::string_view name) {
  if (!name.starts_with(kPrefix) || name.size() > kMaxNameSize) {
    return std::nullopt;
  }
  std::string_view rest = name.substr(kPrefix.size());
  const std::optional<std::int32_t> pid = TakeNumber<std::int32_t>(rest);
  if (!pid) {
    return std::nullopt;
  }
  const std::optional<std::uint64_t> start_time = TakeNumber<std::uint64_t>(rest);
  if (!start_time || rest.empty() || !std::all_of(rest.begin(), rest.end(), IsNameCharacter)) {
    return std::nullopt;
  }
  return ProcessIdentity{*pid, *start_time};
}

}  // namespace refit::device
