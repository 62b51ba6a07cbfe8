// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a user can say about the transports of a process. Plain values.

#pragma once

#include "refit/transport/nixl/nixl_options.h"

namespace refit::transport {

struct TransportOptions {
  NixlOptions nixl;
};

}  // namespace refit::transport
