// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/routes.h"

#include <nlohmann/json.hpp>

#include "refit/base/str.h"

namespace refit::engine::reference {
namespace {

using nlohmann::json;
using sync::SessionFamily;

std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

bool Has(Families families, SessionFamily family) {
  switch (families) {
    case Families::kAll: return true;
    case Families::kOnlyA: return family == SessionFamily::kA;
    case Families::kOnlyB: return family == SessionFamily::kB;
    case Families::kOnlyC: return family == SessionFamily::kC;
    case Families::kBAndC: return family != SessionFamily::kA;
  }
  return false;
}

bool IsBearer(std::string_view authorization, std::string_view key) {
  constexpr std::string_view kBearer = "Bearer ";
  return authorization.starts_with(kBearer) && authorization.substr(kBearer.size()) == key;
}

}  // namespace

const Route* FindRoute(std::string_view path, SessionFamily family) {
  for (const std::span<const Route> routes : {WeightRoutes(), GenerateRoutes(), InfoRoutes()}) {
    for (const Route& route : routes) {
      if (route.path == path && Has(route.families, family)) {
        return &route;
      }
    }
  }
  return nullptr;
}

bool Admits(Methods methods, std::string_view method) {
  switch (methods) {
    case Methods::kGet: return method == "GET";
    case Methods::kPost: return method == "POST";
    case Methods::kGetPost: return method == "GET" || method == "POST";
    case Methods::kPostPut: return method == "POST" || method == "PUT";
  }
  return false;
}

HttpReply AnswerOf(const Reply& reply) {
  if (reply.kind == ReplyKind::kDeath) {
    return {.body = {}, .death = reply.message};
  }
  const bool success = reply.kind == ReplyKind::kOk;
  return {success ? 200 : 400, Dump({{"success", success}, {"message", reply.message}})};
}

HttpReply ErrorAnswer(int status, std::string_view message) {
  return {status, Dump({{"error", {{"message", message}}}})};
}

HttpReply DetailAnswer(int status, std::string_view detail) { return {status, Dump({{"detail", detail}})}; }

bool Authorized(const Keys& keys, AuthLevel level, std::string_view authorization) {
  const std::string& key =
      level == AuthLevel::kAdminOptional && !keys.admin_key.empty() ? keys.admin_key : keys.api_key;
  return level == AuthLevel::kOpen || key.empty() || IsBearer(authorization, key);
}

}  // namespace refit::engine::reference
