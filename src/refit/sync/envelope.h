// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The envelope: the order of steps around a session (contract §11), as data. A sync::Session walks Envelope(), one
// command per step; a peer::EngineAgent turns each command into CallsOf(). Nobody else knows the order.

#pragma once

#include <span>
#include <vector>

#include "refit/sync/command.h"
#include "refit/sync/engine_call.h"
#include "refit/sync/profile.h"

namespace refit::sync {

// bind, attempt, onload(weights), pause, flush, begin, transfer, end. What follows is decided, not prepared.
std::span<const AgentCommandKind> Envelope();

// What decides which engine calls a step needs. Steps that need none are recorded as done.
struct EngineFacts {
  bool has_sessions = true;      // false once `begin` answered 404 (family A)
  bool begun = false;            // our own `begin` answered 200 and no `end` since
  bool history_unknown = false;  // attached: an earlier client may have left a session open
  bool weights_released = false;
  bool kv_cache_released = false;
  VersionLabel version_label = VersionLabel::kAtActivation;
};

// In order. Empty for commands that are not made of engine calls but of a transfer, a fence or a death.
std::vector<Operation> CallsOf(AgentCommandKind kind, const EngineFacts& facts);

}  // namespace refit::sync
