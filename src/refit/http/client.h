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

namespace refit::http {

struct Request {
  std::string url;      // "http://host:port/path"
  std::string body;     // JSON; empty: GET, else POST
  std::string bearer;   // Authorization, when not empty
  Duration deadline{};  // for the whole call, from the connect to the last byte of the answer
  ByteCount body_limit = 64 * kKiB;
  std::string method{};  // where it is neither: "DELETE"
};

struct Response {
  int status = 0;
  std::string body;  // whole
};

// The complete answer, whatever its status. An error says that there was none, and the request may have run:
// DEADLINE_EXCEEDED at the deadline, RESOURCE_EXHAUSTED for an answer beyond the limit, else UNAVAILABLE.
// Thread: any; blocks until the answer or the deadline.
// A fresh connection each, so that a reset means that the server went away, never that it closed an idle connection.
Result<Response> Send(const Request& request);

// The same for calls that follow each other at once: one connection, used again while it was idle for less than a
// second (servers close idle ones after 5 s). Saves the connect, which costs as much as a small update itself. Thread:
// one at a time.
class Connection {
 public:
  Connection() = default;
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Result<Response> Send(const Request& request);

 private:
  void* curl_ = nullptr;  // libcurl's handle, which keeps the connection
  Instant idle_since_{};
};

}  // namespace refit::http
