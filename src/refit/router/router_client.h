// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The registry of one sglang-router 0.3.2, over its HTTP API. Every call is a connection of its own with one deadline;
// nothing is repeated here, that is fleet/router_registry's to decide.

#pragma once

#include <string>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/router/worker_list.h"

namespace refit::router {

struct NewWorker {
  std::string url;
  SlotIndex slot;
  Incarnation incarnation;
  std::string api_key;  // that the engine wants of whoever generates with it; empty: none
};

// Thread: any; every call blocks until the answer or the deadline.
class RouterClient {
 public:
  // api_key: of the router itself (--api-key); empty: it has none.
  RouterClient(std::string url, std::string api_key) : url_(std::move(url)), api_key_(std::move(api_key)) {}

  // An error says that nothing is known of the list.
  Result<std::vector<Worker>> List(Duration deadline) const;
  // OK: accepted, and perhaps listed later; only a list says so. INVALID_ARGUMENT, PERMISSION_DENIED: refused, it
  // never is. Any other error: nobody knows.
  Status Add(const NewWorker& worker, Duration deadline) const;
  // OK also where there is no such entry (RC-RTR-02).
  Status Delete(const std::string& id, Duration deadline) const;

  const std::string& url() const { return url_; }

 private:
  const std::string url_;
  const std::string api_key_;
};

}  // namespace refit::router
