// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The load slots of policy workers as one engine incarnation sees them: mapped through the transport, and under names
// of this incarnation's own (settled D2), which a dying policy worker or its sweeping successor cannot take away.

#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/shared_memory.h"
#include "refit/transport/transport.h"

namespace refit::runtime {

// Thread: the receive loop of one transfer at a time.
class SenderMemory {
 public:
  SenderMemory(transport::Transport& transport, Incarnation incarnation)
      : transport_(transport), incarnation_(incarnation) {}

  struct LoadSlotObject {
    MutableBytes object;  // header included
    std::string name;     // that the engine's ranks open
  };
  // Maps and names it, once; later calls find it.
  Result<LoadSlotObject> Map(const std::string& transport_address, const std::string& descriptor, Instant deadline);

  // Forgets what `used` does not list: load slots that their sender replaced.
  void Retain(const std::set<std::string>& used);

 private:
  struct Mapped {
    std::unique_ptr<transport::Link> link;  // one each: a mapping lives as long as its link
    MutableBytes object;
    device::SharedName name;
  };

  transport::Transport& transport_;
  const Incarnation incarnation_;
  std::uint64_t named_ = 0;               // names are never reused
  std::map<std::string, Mapped> mapped_;  // by descriptor
};

}  // namespace refit::runtime
