// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The journal as people ask for it: one entry per request that began, in order, with what became of it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/control/journal.h"

namespace refit::control {

struct WrittenRecord {
  Record record;
  std::uint64_t written_at = 0;  // milliseconds since 1970, by the writer's clock; for people
};

struct HistoryEntry {
  std::string request_id;
  std::string source{};
  WeightVersion version{};
  std::uint32_t attempts = 0;
  std::uint64_t began_at = 0;
  std::uint64_t ended_at = 0;  // decided, or failed; 0: not yet
  bool committed = false;
  std::optional<Status> status{};  // of its outcome; none: nobody has been told yet
  Digest digest{};
  std::vector<SlotIndex> members{};
  std::vector<std::pair<SlotIndex, std::string>> excluded{};  // with the reason
};

struct History {
  RunId run;
  std::vector<HistoryEntry> entries;
};

History MakeHistory(const std::vector<WrittenRecord>& records);

}  // namespace refit::control
