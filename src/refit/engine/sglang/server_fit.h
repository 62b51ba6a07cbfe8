// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether a server, as it describes itself, can be refitted at all: asked before it is touched.

#pragma once

#include <cstdint>

#include "refit/base/status.h"
#include "refit/engine/engine.h"

namespace refit::engine::sglang {

enum class Owner : std::uint8_t { kAgent, kSomebody };  // who started the server

// FAILED_PRECONDITION names the setting, its value and what it must be. What the session needs of family and pause mode
// is peer::CheckEngineAgentOptions.
Status CheckServerFits(const EngineDescription& description, std::uint32_t tp_size, Owner owner);

}  // namespace refit::engine::sglang
