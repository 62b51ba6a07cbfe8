// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The transports of one process, each made when the first stream asks for it: an agent's and a policy worker's only
// meet over those that both have.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "refit/base/status.h"
#include "refit/transport/factory.h"
#include "refit/transport/shm/shm_transport.h"
#include "refit/transport/transport.h"

namespace refit::runtime {

// Thread: any.
class TransportSet {
 public:
  explicit TransportSet(transport::TransportOptions options) : options_(std::move(options)) {}

  // "shm", "cuda_ipc", "nixl", "loopback"; the errors are MakeTransport's.
  Result<transport::Transport*> Get(const std::string& name);
  transport::ShmTransport& shm() { return shm_; }

 private:
  const transport::TransportOptions options_;
  transport::ShmTransport shm_;
  std::mutex mutex_;  // guards others_; held while one is made
  std::map<std::string, std::unique_ptr<transport::Transport>> others_;
};

}  // namespace refit::runtime
