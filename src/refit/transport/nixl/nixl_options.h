// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a user says about NIXL: the keys transport.nixl and generation.refit_cfg.nixl. docs/nixl.md explains them.

#pragma once

#include <map>
#include <string>

namespace refit::transport {

struct NixlOptions {
  // The folder into which the wheel nixl-cu13 was installed or unpacked (a Python's site-packages), or libnixl_capi.so.
  std::string library;
  std::string backend_name = "UCX";
  std::map<std::string, std::string> backend_params;  // engine_config, ucx_devices, …: what the back end takes
  // What the environment says: UCX reads it by itself, we only check it (RC-ENV-01).
  std::string ucx_tls;
};

}  // namespace refit::transport
