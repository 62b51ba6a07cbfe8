// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/read_history.h"

#include <utility>
#include <vector>

namespace refit::runtime {

Result<control::History> ReadHistory(store::Store& store) {
  REFIT_ASSIGN_OR_RETURN(const std::vector<store::Row> rows, store.ReadRows());
  std::vector<control::WrittenRecord> records;
  for (const store::Row& row : rows) {
    REFIT_ASSIGN_OR_RETURN(control::Record record, control::Decode(row.payload));
    records.push_back({std::move(record), row.written_at});
  }
  return control::MakeHistory(records);
}

Result<control::History> ReadHistory(const std::string& state_directory) {
  REFIT_ASSIGN_OR_RETURN(const auto store, store::Store::OpenExisting(state_directory));
  return ReadHistory(*store);
}

}  // namespace refit::runtime
