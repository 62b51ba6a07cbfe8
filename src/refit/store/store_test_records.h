// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What every test of a store writes into it, and reads out of it.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/str.h"
#include "refit/store/store.h"

namespace refit::store {

inline constexpr RunId kRun{{3, 4}};

// The next term, whoever has the one before.
inline Term Take(Store& store) {
  const auto holder = store.ReadHolder();
  EXPECT_TRUE(holder.has_value()) << holder.status().ToString();
  const auto term = store.TakeTerm(holder->term, {.pid = getpid(), .boot_id = "here"}, kRun);
  EXPECT_TRUE(term.has_value()) << term.status().ToString();
  return term.has_value() ? *term : Term();
}

inline std::vector<control::Record> Records(Store& store) {
  std::vector<control::Record> records;
  const auto payloads = store.ReadRecords();
  EXPECT_TRUE(payloads.has_value()) << payloads.status().ToString();
  if (payloads.has_value()) {
    for (const std::string& payload : *payloads) {
      const auto record = control::Decode(payload);
      EXPECT_TRUE(record.has_value()) << record.status().ToString();
      records.push_back(*record);
    }
  }
  return records;
}

inline control::IntentRecord Intent(Term term, std::uint32_t n) {
  return {.request_id = StrCat("r", n), .version = WeightVersion(n), .attempt = {term, n}, .source = "m"};
}
inline control::CommitRecord Commit(std::uint32_t n) {
  return {.request_id = StrCat("r", n),
          .version = WeightVersion(n),
          .digest = Digest{{n, n}},
          .source = "m",
          .members = {},
          .excluded = {}};
}

}  // namespace refit::store
