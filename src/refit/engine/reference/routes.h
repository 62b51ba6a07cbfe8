// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The HTTP surface as data: one row per route, with who may call it, which switch makes it misbehave, and its handler.
// Handlers turn a request into calls of the engine and its replies into answers; they know nothing of sockets.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "refit/engine/reference/faults.h"
#include "refit/engine/reference/server_engine.h"

namespace refit::engine::reference {

struct HttpRequest {
  std::string_view method;
  std::string_view path;
  std::string_view body;
  std::multimap<std::string, std::string> query;
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";
  std::optional<std::string> death = {};  // the engine dies of this instead of answering
};

enum class AuthLevel : std::uint8_t { kOpen, kNormal, kAdminOptional };  // docs/spec/sglang-wire.md §1.0
enum class Methods : std::uint8_t { kGet, kPost, kGetPost, kPostPut };
enum class Families : std::uint8_t { kAll, kOnlyA, kOnlyB, kOnlyC, kBAndC };

struct Route {
  std::string_view path;
  Methods methods;
  AuthLevel auth;
  Families families;
  FaultRoute fault;
  HttpReply (*handle)(ReferenceEngine& engine, const HttpRequest& request);
};

// In routes_info.cc, routes_weights.cc, routes_generate.cc.
std::span<const Route> InfoRoutes();
std::span<const Route> WeightRoutes();
std::span<const Route> GenerateRoutes();

// Null where this family has no such path.
const Route* FindRoute(std::string_view path, sync::SessionFamily family);
bool Admits(Methods methods, std::string_view method);

// The three shapes of answers to control calls (§1.0): {"success", "message"} with 200 or 400, {"error": {"message"}},
// {"detail"}. A reply of kDeath becomes a death.
HttpReply AnswerOf(const Reply& reply);
HttpReply ErrorAnswer(int status, std::string_view message);
HttpReply DetailAnswer(int status, std::string_view detail);

// Which calls need which key, and what a call without it gets.
struct Keys {
  std::string api_key;    // empty: none
  std::string admin_key;  // empty: none
};
bool Authorized(const Keys& keys, AuthLevel level, std::string_view authorization);

}  // namespace refit::engine::reference
