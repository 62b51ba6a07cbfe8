// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A policy worker process: peer::PolicyAgent with a source of weights, its load slots and its service.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/memory.h"
#include "refit/runtime/load_packer.h"
#include "refit/transport/transport_options.h"

namespace refit::runtime {

struct PolicyHostOptions {
  PolicyRank rank;
  std::string source;      // checkpoint folder; what `sync --source policy-default` sends
  std::string controller;  // address; empty: where state_directory says
  std::string listen = "127.0.0.1:0";
  std::string state_directory{};            // of the controller; empty: none
  std::optional<device::GpuOrdinal> gpu{};  // where the source's tensors are kept; nothing: in mapped files
  transport::TransportOptions transports{};
  Digests digests = Digests::kOn;
  Duration register_deadline{};
};

// Owns the service and its threads; the destructor stops them and removes every shared-memory object.
class PolicyHost {
 public:
  // Sweeps shared memory of dead owners, opens the source once (so that a bad one is found now), serves, registers.
  static Result<std::unique_ptr<PolicyHost>> Start(PolicyHostOptions options);
  virtual ~PolicyHost() = default;
  virtual const std::string& address() const = 0;
};

}  // namespace refit::runtime
