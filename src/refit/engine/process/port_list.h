// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The ports that the engines of a run were given on this host. Each is given once (settled C9): a router's late entry
// for an old life must not reach a new one. Agents of one host share the list, and an agent that is started again finds
// it: it is a file.

#pragma once

#include <cstdint>
#include <string>

#include "refit/base/ids.h"
#include "refit/base/status.h"

namespace refit::engine::process {

// A small file in the temporary folder, this user's; it stays when the run is over.
std::string PortListPath(RunId run);

// A free TCP port of 127.0.0.1 that is not on the list, and now is. Below the range from which the kernel serves
// outgoing connections: a server may bind it only many seconds later. Thread and process: any.
Result<std::uint16_t> TakePort(const std::string& list_path);

}  // namespace refit::engine::process
