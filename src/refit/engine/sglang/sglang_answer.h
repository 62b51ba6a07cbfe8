// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What an HTTP answer of the engine means (RC-RPC-01): success only where it is explicit.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "refit/http/client.h"
#include "refit/sync/engine_call.h"

namespace refit::engine::sglang {

// What the route's stock success looks like, apart from status 200.
enum class SuccessForm : std::uint8_t {
  kSuccessField,  // a JSON object with "success": true
  kObject,        // a JSON object; "success" and "status" may be absent but must not say otherwise
  kText,          // any text
  kNullOrObject,  // JSON null, or as kObject
};
enum class MissingRoute : std::uint8_t { kIsRefusal, kIsNotFound };

// 4xx: refused (404: not found, where the route may be missing). 200: by its form; an explicit "success": false is a
// refusal. Everything else is none, as is a reply that cannot be read: the call may or may not have run (C8).
sync::Answer Judge(const http::Response& response, SuccessForm form, MissingRoute missing_route);

// The engine's own words from a reply of any shape: one line, at most 300 bytes.
std::string EngineMessage(const http::Response& response);

// `text` on one line of at most 300 bytes of valid UTF-8.
std::string CapMessage(std::string_view text);

}  // namespace refit::engine::sglang
