// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server of refit-engine: SGLang's contract in front of a ReferenceEngine, with its faults.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "refit/base/status.h"
#include "refit/engine/reference/faults.h"
#include "refit/engine/reference/routes.h"
#include "refit/engine/reference/server_engine.h"

namespace refit::engine::reference {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: one that is free
  Keys keys;
  std::vector<Fault> faults;
  std::string fault_file;  // see FaultTable
};

class ReferenceServer {
 public:
  // Listens from here on. The engine outlives the server.
  static Result<std::unique_ptr<ReferenceServer>> Start(ReferenceEngine& engine, ServerOptions options);
  ~ReferenceServer();  // stops the engine, closes every connection, joins every thread

  std::uint16_t port() const;

 private:
  struct Impl;
  explicit ReferenceServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace refit::engine::reference
