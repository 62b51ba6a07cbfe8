// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A list of workers from nobody knows whom: an id that is accepted can stand in a path, and none is there twice.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "refit/base/check.h"
#include "refit/router/worker_list.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto workers = refit::router::ParseWorkerList({reinterpret_cast<const char*>(data), size});
  if (workers.has_value()) {
    std::set<std::string> ids;
    for (const refit::router::Worker& worker : *workers) {
      REFIT_CHECK(worker.id.find_first_not_of("0123456789abcdefABCDEF-") == std::string::npos, "an id leaves its path");
      REFIT_CHECK(!worker.id.empty() && ids.insert(worker.id).second, "an id names nobody, or two entries");
      REFIT_CHECK(!worker.url.empty(), "an entry without an address");
    }
  }
  return 0;
}
