// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a user can say about the transports of a process. Plain values.

#pragma once

#include <map>
#include <string>

namespace refit::transport {

// NeMo-RL's keys refit_cfg.nixl.{backend_name, backend_init_params}, and where the library is.
struct NixlOptions {
  std::string library;  // the wheel's folder, or libnixl_capi.so itself; empty: where the system finds it
  std::string backend = "UCX";
  std::map<std::string, std::string> backend_parameters;
};

struct TransportOptions {
  NixlOptions nixl;
};

}  // namespace refit::transport
