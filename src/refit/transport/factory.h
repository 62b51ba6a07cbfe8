// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// From transport.name of the configuration to a backend.

#pragma once

#include <memory>
#include <string_view>

#include "refit/base/status.h"
#include "refit/transport/transport.h"
#include "refit/transport/transport_options.h"

namespace refit::transport {

// "auto" (the fastest one that is built: shm), "shm" or "loopback". UNIMPLEMENTED for a backend that is planned but not
// in this build, INVALID_ARGUMENT for anything else; both say which there are.
Result<std::unique_ptr<Transport>> MakeTransport(std::string_view name, const TransportOptions& options = {});

}  // namespace refit::transport
