// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The command line that starts an sglang-router 0.3.2 without workers.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/time.h"

namespace refit::router {

struct RouterCommand {
  std::string python = "python3";  // that has the package sglang-router
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::uint16_t metrics_port = 0;            // its default is one port for every router of the host
  std::string policy{};                      // empty: the router's default
  std::int64_t request_timeout_seconds = 0;  // 0: the router's default
  // How long the router tries to reach an engine that it was told of. Its default is half an hour, for so long a dead
  // engine could come back to the list.
  Duration worker_startup_timeout = std::chrono::seconds(5);
  std::string api_key_file{};  // empty: it wants no key
};

std::string Address(const RouterCommand& command);  // "host:port"

// An argument vector. The key is not on it, where every user of the host could read it.
std::vector<std::string> MakeArguments(const RouterCommand& command);

}  // namespace refit::router
