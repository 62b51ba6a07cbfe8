// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/op_table.h"

#include <utility>

#include "refit/base/check.h"
#include "refit/base/str.h"

namespace refit::transport {

OpId OpTable::Start() {
  pending_.insert(next_);
  return next_++;
}

void OpTable::End(OpId op, Status status) {
  REFIT_CHECK(pending_.erase(op) == 1, "an operation ends exactly once");
  if (!status.ok()) {
    failed_.emplace(op, std::move(status));
  }
}

OpState OpTable::state(OpId op) const {
  if (pending_.contains(op)) {
    return OpState::kPending;
  }
  return op == 0 || op >= next_ || failed_.contains(op) ? OpState::kFailed : OpState::kDone;
}

Status OpTable::error(OpId op) const {
  if (op == 0 || op >= next_) {
    return NotFound(StrCat("this link started no operation ", op));
  }
  const auto found = failed_.find(op);
  return found == failed_.end() ? OkStatus() : found->second;
}

Status CheckRange(Range range, ByteCount exported, const device::Memory& into) {
  const std::optional<ByteCount> end = CheckedAdd(range.offset, range.size);
  if (!end || *end > exported) {
    return {StatusCode::kOutOfRange,
            StrCat("range of ", range.size, " bytes at ", range.offset, " of an export of ", exported),
            "the announcement and the export differ; bind again"};
  }
  if (into.size() != range.size) {
    return InvalidArgument(StrCat("range of ", range.size, " bytes into a buffer of ", into.size()));
  }
  return OkStatus();
}

}  // namespace refit::transport
