// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary between whoever decides engine calls (peer/) and whoever makes them (engine/).

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "refit/base/time.h"

namespace refit::sync {

// Mutating engine operations, contract §0.2.
enum class Operation : std::uint8_t {
  kOnloadWeights,
  kPause,
  kFlush,
  kBegin,
  kUpdate,
  kEnd,
  kLabel,
  kOnloadKvCache,
  kResume,
  kRelease,  // both tags
};
std::string_view ToString(Operation operation);  // "onload(weights)", "pause", … as people read it in errors

// How a session behaves (sglang-weight-update §0.2): A has no session routes, B dies on a wrong call, C answers 400.
enum class SessionFamily : std::uint8_t { kA, kB, kC };
std::string_view ToString(SessionFamily family);  // "a", "b", "c"

enum class PauseMode : std::uint8_t { kAbort, kRetract };
std::string_view ToString(PauseMode mode);

// How an engine call ended (RC-RPC-01, -06, C8).
enum class AnswerKind : std::uint8_t {
  kOk,        // explicit success
  kRefused,   // explicit refusal: any 4xx, or 200 with success:false
  kNotFound,  // 404: the route does not exist
  kNone,      // anything else: no complete answer, the call may or may not have run
};

struct Answer {
  AnswerKind kind;
  std::string message;  // the engine's own words, capped; for kNone what went wrong
  Duration elapsed{};   // call sent to answer complete
};

}  // namespace refit::sync
