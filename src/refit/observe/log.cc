// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/observe/log.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>

#include <fmt/format.h>

namespace refit::observe {
namespace {

std::string& role() {
  static std::string name = "refit";
  return name;
}

std::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "info";
}

}  // namespace

void SetLogRole(std::string_view name) { role() = name; }

void Log(LogLevel level, std::string_view text) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
  std::string line = fmt::format("{}.{:03}Z {} {} {}", stamp, millis, role(), NameOf(level), text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // One write, so that lines of different threads and processes do not mix.
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
}

}  // namespace refit::observe
