// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/sglang_answer.h"

#include <nlohmann/json.hpp>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::engine::sglang {
namespace {

using Json = nlohmann::json;
using sync::AnswerKind;

constexpr std::size_t kMessageLimit = 300;

// Discarded where the text is not JSON.
Json Parse(std::string_view text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// What the "success" field says.
enum class Claim : std::uint8_t { kTrue, kFalse, kAbsent, kOther };

Claim ClaimOf(const Json& reply) {
  const Json* success = Find(reply, "success");
  if (success == nullptr) {
    return REFIT_MUTANT("RC-RPC-01/default-success-to-true", Claim::kAbsent, Claim::kTrue);
  }
  if (!success->is_boolean()) {
    return Claim::kOther;
  }
  return success->get<bool>() ? Claim::kTrue : Claim::kFalse;
}

bool IsSuccess(const Json& reply, SuccessForm form) {
  const Claim claim = ClaimOf(reply);
  switch (form) {
    case SuccessForm::kSuccessField: return claim == Claim::kTrue;
    case SuccessForm::kText: return claim != Claim::kOther;
    case SuccessForm::kNullOrObject:
      if (reply.is_null()) {
        return true;
      }
      [[fallthrough]];
    case SuccessForm::kObject: {
      const Json* status = Find(reply, "status");
      return reply.is_object() && (claim == Claim::kTrue || claim == Claim::kAbsent) &&
             (status == nullptr || *status == "ok");
    }
  }
  return false;
}

}  // namespace

std::string CapMessage(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    line += byte < 0x20 || byte == 0x7f ? ' ' : c;
    if (line.size() == kMessageLimit + 4) {
      break;  // room to see where the last character ends
    }
  }
  if (line.size() > kMessageLimit) {
    std::size_t end = kMessageLimit - 3;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) {
      --end;
    }
    line.resize(end);
    line += "...";
  }
  // The message goes into JSON and protobuf, which both want UTF-8: bytes that are none are dropped.
  return Parse(Json(line).dump(-1, ' ', false, Json::error_handler_t::ignore)).get<std::string>();
}

std::string EngineMessage(const http::Response& response) {
  const Json reply = Parse(response.body);
  const Json* error = Find(reply, "error");
  for (const Json* words :
       {Find(reply, "message"), error == nullptr ? nullptr : Find(*error, "message"), error, Find(reply, "detail")}) {
    if (words != nullptr && words->is_string()) {
      return CapMessage(words->get_ref<const std::string&>());
    }
  }
  return CapMessage(response.body);
}

sync::Answer Judge(const http::Response& response, SuccessForm form, MissingRoute missing_route) {
  const std::string message = EngineMessage(response);
  if (response.status == 404 && missing_route == MissingRoute::kIsNotFound) {
    return {AnswerKind::kNotFound, message};
  }
  if (response.status == 401 || response.status == 403) {
    return {AnswerKind::kRefused, StrCat(response.status, " ", message, ": the engine wants another admin key")};
  }
  if (response.status == 404) {
    return {AnswerKind::kRefused, StrCat("404 ", message, ": the engine has no such route")};
  }
  if (response.status >= 400 && response.status < 500) {
    return {AnswerKind::kRefused, message};
  }
  if (response.status != 200) {
    return {AnswerKind::kNone, CapMessage(StrCat("status ", response.status, ": ", message))};
  }
  const Json reply = Parse(response.body);
  if (REFIT_MUTANT("RC-RPC-03/ignore-the-body", false, true)) {
    return {AnswerKind::kOk, message};
  }
  if (ClaimOf(reply) == Claim::kFalse) {
    return {AnswerKind::kRefused, message};
  }
  if (!IsSuccess(reply, form)) {
    return {AnswerKind::kNone, CapMessage(StrCat("status 200 without an explicit success: ", message))};
  }
  return {AnswerKind::kOk, message};
}

}  // namespace refit::engine::sglang
