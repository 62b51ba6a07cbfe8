// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One HTTP request over a connection of its own. A fresh connection means that a reset is the server's end and never an
// idle connection's; so nothing is retried here. No redirects, no proxy.

#pragma once

#include <string>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/base/time.h"

namespace refit::engine::sglang {

struct HttpRequest {
  std::string url;      // "http://host:port/path"
  std::string body;     // JSON; empty: GET, else POST
  std::string bearer;   // Authorization, when not empty
  Duration deadline{};  // for the whole call, from the connect to the last byte of the answer
  ByteCount body_limit = 64 * kKiB;
};

struct HttpResponse {
  int status = 0;
  std::string body;  // whole
};

// The complete answer, whatever its status. An error says that there was none, and the request may have run:
// DEADLINE_EXCEEDED at the deadline, RESOURCE_EXHAUSTED for an answer beyond the limit, else UNAVAILABLE.
// Thread: any; blocks until the answer or the deadline.
Result<HttpResponse> SendHttp(const HttpRequest& request);

}  // namespace refit::engine::sglang
