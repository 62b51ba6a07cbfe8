// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/router/router_client.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/http/client.h"

namespace refit::router {
namespace {

using Json = nlohmann::json;

constexpr ByteCount kListLimit = 4 * kMiB;  // an entry has half a KiB
constexpr ByteCount kAnswerLimit = 64 * kKiB;
constexpr std::size_t kShown = 200;

// What the router says of a call that it did not accept; OK for those that it did.
Status Judge(const std::string& call, const http::Response& response) {
  if (response.status >= 200 && response.status < 300) {
    return OkStatus();
  }
  std::string said = StrCat(call, " answered ", response.status);
  for (const char c : response.body.substr(0, kShown)) {
    said += said.back() == ' ' || static_cast<unsigned char>(c) >= 0x20 ? c : ' ';
  }
  if (response.status == 401 || response.status == 403) {
    return {StatusCode::kPermissionDenied, std::move(said),
            "give its key: generation.sglang_router_config.api_key_file"};
  }
  if (response.status >= 400 && response.status < 500) {
    return InvalidArgument(std::move(said));
  }
  return Unavailable(std::move(said));
}

}  // namespace

Result<std::vector<Worker>> RouterClient::List(Duration deadline) const {
  REFIT_ASSIGN_OR_RETURN(const http::Response response, http::Send({.url = StrCat(url_, "/workers"),
                                                                    .body = {},
                                                                    .bearer = api_key_,
                                                                    .deadline = deadline,
                                                                    .body_limit = kListLimit}));
  REFIT_RETURN_IF_ERROR(Judge("GET /workers", response));
  Result<std::vector<Worker>> workers = ParseWorkerList(response.body);
  if (!workers.has_value() && REFIT_MUTANT("RC-RTR-04/what-is-no-list-is-empty", false, true)) {
    return std::vector<Worker>();
  }
  return workers;
}

Status RouterClient::Add(const NewWorker& worker, Duration deadline) const {
  Json body = {
      {"url", worker.url},
      {"labels", {{kSlotLabel, std::to_string(worker.slot.value())}, {kIncarnationLabel, ToHex(worker.incarnation)}}},
      // Its checks would take a paused engine out of traffic for good; ours decide (settled C9).
      {"disable_health_check", REFIT_MUTANT("RC-RTR-04/let-the-router-check", true, false)}};
  if (!worker.api_key.empty()) {
    body["api_key"] = worker.api_key;
  }
  const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  REFIT_ASSIGN_OR_RETURN(const http::Response response, http::Send({.url = StrCat(url_, "/workers"),
                                                                    .body = text,
                                                                    .bearer = api_key_,
                                                                    .deadline = deadline,
                                                                    .body_limit = kAnswerLimit}));
  return Judge(StrCat("POST /workers of ", worker.url), response);
}

Status RouterClient::Delete(const std::string& id, Duration deadline) const {
  REFIT_ASSIGN_OR_RETURN(const http::Response response, http::Send({.url = StrCat(url_, "/workers/", id),
                                                                    .body = {},
                                                                    .bearer = api_key_,
                                                                    .deadline = deadline,
                                                                    .body_limit = kAnswerLimit,
                                                                    .method = "DELETE"}));
  if (response.status == 404 && REFIT_MUTANT("RC-RTR-02/404-is-an-error", true, false)) {
    return OkStatus();
  }
  return Judge(StrCat("DELETE /workers/", id), response);
}

}  // namespace refit::router
