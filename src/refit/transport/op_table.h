// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How the operations of one link ended, for backends. Thread: the link's.

#pragma once

#include <map>
#include <set>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/transport/transport.h"

namespace refit::transport {

class OpTable {
 public:
  OpId Start();                      // a pending operation
  void End(OpId op, Status status);  // once per operation
  OpState state(OpId op) const;      // kFailed for a number that Start() never gave
  Status error(OpId op) const;       // OK unless failed

 private:
  OpId next_ = 1;
  std::set<OpId> pending_;
  std::map<OpId, Status> failed_;  // those that went well need no memory
};

// What every backend refuses before it starts reading: a range outside [0, exported), a target of another size.
Status CheckRange(Range range, ByteCount exported, const device::Memory& into);

}  // namespace refit::transport
