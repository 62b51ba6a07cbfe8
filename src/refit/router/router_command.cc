// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/router/router_command.h"

#include <algorithm>

#include "refit/base/str.h"

namespace refit::router {
namespace {

// The router takes its key as an argument only. Python gets the file's name and hands the key on inside the process.
constexpr const char* kStartWithKey =
    "import sys\n"
    "from sglang_router.launch_router import main\n"
    "with open(sys.argv.pop(1), encoding='utf-8') as file:\n"
    "    sys.argv += ['--api-key', file.readline().rstrip('\\r\\n')]\n"
    "main()\n";

}  // namespace

std::string Address(const RouterCommand& command) {
  const bool is_ipv6 = command.host.find(':') != std::string::npos && !command.host.starts_with('[');
  return StrCat(is_ipv6 ? StrCat("[", command.host, "]") : command.host, ":", command.port);
}

std::vector<std::string> MakeArguments(const RouterCommand& command) {
  std::vector<std::string> arguments = {command.python};
  if (command.api_key_file.empty()) {
    arguments.insert(arguments.end(), {"-m", "sglang_router.launch_router"});
  } else {
    arguments.insert(arguments.end(), {"-c", kStartWithKey, command.api_key_file});
  }
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(command.worker_startup_timeout).count();
  const auto add = [&arguments](const char* flag, std::string value) {
    arguments.emplace_back(flag);
    arguments.push_back(std::move(value));
  };
  add("--host", command.host);
  add("--port", std::to_string(command.port));
  add("--prometheus-host", command.host);
  add("--prometheus-port", std::to_string(command.metrics_port));
  add("--worker-startup-timeout-secs", std::to_string(std::max<std::int64_t>(1, seconds)));
  add("--worker-startup-check-interval", "1");
  // Of entries that are not ours: those of ours switch it off.
  add("--health-check-interval-secs", "1");
  add("--health-check-timeout-secs", "1");
  add("--health-failure-threshold", "2");
  add("--health-success-threshold", "1");
  add("--log-level", "warn");  // else it writes two lines for every request
  if (!command.policy.empty()) {
    add("--policy", command.policy);
  }
  if (command.request_timeout_seconds > 0) {
    add("--request-timeout-secs", std::to_string(command.request_timeout_seconds));
  }
  return arguments;
}

}  // namespace refit::router
