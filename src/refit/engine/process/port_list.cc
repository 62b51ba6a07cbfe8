// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/process/port_list.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/exec/random.h"

namespace refit::engine::process {
namespace {

constexpr std::uint32_t kLowestPort = 10'000;
constexpr std::uint32_t kUsualEphemeralStart = 32'768;
constexpr int kPortTries = 200;

// Where the kernel begins to take the ports of outgoing connections from.
std::uint32_t EphemeralStart() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  std::uint32_t start = 0;
  return file >> start && start > kLowestPort + 1000 && start < 65536 ? start : kUsualEphemeralStart;
}

bool IsFree(std::uint16_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const bool free = listener >= 0 && bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (listener >= 0) {
    close(listener);
  }
  return free;
}

std::set<std::uint32_t> Given(int list) {
  std::string text;
  char chunk[4096];
  for (ssize_t got; (got = read(list, chunk, sizeof chunk)) > 0;) {
    text.append(chunk, static_cast<std::size_t>(got));
  }
  std::istringstream numbers(text);
  std::set<std::uint32_t> given;
  for (std::uint32_t port = 0; numbers >> port;) {
    given.insert(port);
  }
  return given;
}

Result<std::uint16_t> TakeFrom(int list) {
  const std::set<std::uint32_t> given = Given(list);
  const std::uint32_t range = EphemeralStart() - kLowestPort;
  for (int i = 0; i < kPortTries; ++i) {
    const std::uint64_t draw = REFIT_MUTANT("RC-REC-09/fixed-port", exec::RandomId().low, std::uint64_t{1});
    const auto port = static_cast<std::uint16_t>(kLowestPort + draw % range);
    if (given.contains(port) || !IsFree(port)) {
      continue;
    }
    const std::string line = StrCat(port, "\n");
    if (write(list, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      return ResourceExhausted(StrCat("the list of ports cannot be written: ", std::strerror(errno)),
                               "free some space in the temporary folder");
    }
    return port;
  }
  return ResourceExhausted(StrCat("no free port from ", kLowestPort, " to ", kLowestPort + range - 1),
                           "end some servers of this host");
}

}  // namespace

std::string PortListPath(RunId run) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return (error ? std::filesystem::path("/tmp") : folder) / StrCat("refit-ports-", getuid(), "-", ToHex(run));
}

Result<std::uint16_t> TakePort(const std::string& list_path) {
  const int list = open(list_path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (list < 0 || flock(list, LOCK_EX) != 0) {
    const std::string problem = std::strerror(errno);
    if (list >= 0) {
      close(list);
    }
    return FailedPrecondition(StrCat("list of ports ", list_path, ": ", problem), "name a writable folder as TMPDIR");
  }
  auto port = TakeFrom(list);
  close(list);  // and with it the lock
  return port;
}

}  // namespace refit::engine::process
