// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// RX-JRNL-02: any bytes, read as a sequence of payloads with 16-bit lengths before them. What decodes is exactly what
// Encode writes; what is applied keeps what was promised before it; what contradicts changes nothing.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/check.h"
#include "refit/control/journal.h"

namespace refit::control {
namespace {

std::vector<std::string> Split(std::string_view input) {
  std::vector<std::string> payloads;
  while (input.size() >= 2) {
    const std::size_t size = static_cast<std::uint8_t>(input[0]) | std::size_t{static_cast<std::uint8_t>(input[1])}
                                                                       << 8;
    payloads.emplace_back(input.substr(2, size));
    input.remove_prefix(2 + payloads.back().size());
  }
  return payloads;
}

void CheckStep(const JournalState& before, const JournalState& after) {
  REFIT_CHECK(after.term >= before.term, "a term went back");
  REFIT_CHECK(after.committed >= before.committed && after.burned >= before.burned, "a version went back");
  REFIT_CHECK(after.commits.empty() || after.commits.rbegin()->first == after.committed, "not the last version");
  for (const auto& [version, commit] : before.commits) {
    REFIT_CHECK(after.commits.at(version) == commit, "a version was published twice");
  }
  for (const auto& [request, outcome] : before.outcomes) {
    REFIT_CHECK(after.outcomes.at(request) == outcome, "a request has two outcomes");
  }
  REFIT_CHECK(!before.latch.has_value() || after.latch == before.latch, "a latch was replaced");
}

void CheckUnchanged(const JournalState& before, const JournalState& after) {
  CheckStep(before, after);
  CheckStep(after, before);
  REFIT_CHECK(before.attempts == after.attempts && before.intent == after.intent && before.latch == after.latch &&
                  before.retired == after.retired && before.slots.size() == after.slots.size(),
              "a record that contradicts has changed something");
}

void Run(const std::vector<std::string>& payloads) {
  JournalState state;
  bool is_sound = true;
  for (const std::string& payload : payloads) {
    const Result<Record> record = Decode(payload);
    if (!record.ok()) {
      REFIT_CHECK(record.status().code() == StatusCode::kDataLoss, "the code of what is corrupt");
      is_sound = false;
      continue;
    }
    REFIT_CHECK(Encode(*record) == payload, "a record has two encodings");
    REFIT_CHECK(ToString(*record).find('\n') == std::string::npos, "a record takes more than one line");
    const JournalState before = state;
    if (const Status status = Apply(*record, state); status.ok()) {
      CheckStep(before, state);
    } else {
      REFIT_CHECK(status.code() == StatusCode::kDataLoss, "the code of what contradicts");
      CheckUnchanged(before, state);
      is_sound = false;
    }
  }
  REFIT_CHECK(Replay(payloads).ok() == is_sound, "a replay skips what is bad");
}

}  // namespace
}  // namespace refit::control

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  refit::control::Run(refit::control::Split({reinterpret_cast<const char*>(data), size}));
  return 0;
}
