// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What sglang-router lists (GET /workers), read strictly: an answer that cannot be believed is an error and never an
// empty list, since what is not on the list counts as out of traffic (RC-RTR-04).

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"

namespace refit::router {

// The labels that our entries carry; the router shows them among its own metadata.
inline constexpr std::string_view kSlotLabel = "slot";
inline constexpr std::string_view kIncarnationLabel = "incarnation";

struct Worker {
  std::string id;  // the router's own; safe to stand in a path
  std::string url;
  SlotIndex slot;
  Incarnation incarnation;  // zero: the entry has no such labels, so it is not ours
};

Result<std::vector<Worker>> ParseWorkerList(std::string_view text);

}  // namespace refit::router
