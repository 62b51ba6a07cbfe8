// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/control/history.h"

#include <algorithm>

namespace refit::control {

History MakeHistory(const std::vector<WrittenRecord>& records) {
  History history;
  const auto entry_of = [&history](const std::string& request_id) -> HistoryEntry& {
    const auto found = std::find_if(history.entries.rbegin(), history.entries.rend(),
                                    [&request_id](const HistoryEntry& one) { return one.request_id == request_id; });
    return found != history.entries.rend() ? *found
                                           : history.entries.emplace_back(HistoryEntry{.request_id = request_id});
  };
  for (const auto& [record, written_at] : records) {
    if (const auto* run = std::get_if<RunRecord>(&record)) {
      history.run = run->run;
    } else if (const auto* intent = std::get_if<IntentRecord>(&record)) {
      HistoryEntry& entry = entry_of(intent->request_id);
      entry.source = intent->source;
      entry.version = intent->version;
      entry.began_at = entry.began_at == 0 ? written_at : entry.began_at;
      ++entry.attempts;
    } else if (const auto* commit = std::get_if<CommitRecord>(&record)) {
      HistoryEntry& entry = entry_of(commit->request_id);
      entry.committed = true;
      entry.ended_at = written_at;
      entry.digest = commit->digest;
      entry.excluded = commit->excluded;
      for (const CommitMember& member : commit->members) {
        entry.members.push_back(member.slot);
      }
    } else if (const auto* outcome = std::get_if<OutcomeRecord>(&record)) {
      HistoryEntry& entry = entry_of(outcome->request_id);
      entry.status = outcome->status;
      entry.ended_at = entry.committed ? entry.ended_at : written_at;
    }
  }
  return history;
}

}  // namespace refit::control
