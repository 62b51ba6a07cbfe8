// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The loads of policy workers where they lie, as one engine incarnation sees them: host objects mapped through the
// transport and under names of this incarnation's own (settled D2), which a dying policy worker or its sweeping
// successor cannot take away; or GPU memory, which only the engine's ranks open.

#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/ref_counters.h"
#include "refit/device/shared_memory.h"
#include "refit/runtime/shared_load.h"
#include "refit/runtime/transport_set.h"
#include "refit/transport/transport.h"

namespace refit::runtime {

// Thread: the receive loop of one transfer at a time.
class SenderMemory {
 public:
  // counters: this incarnation's, null where the engine runs on no GPU.
  SenderMemory(TransportSet& transports, Incarnation incarnation, device::RefCounters* counters)
      : transports_(transports), incarnation_(incarnation), counters_(counters) {}

  // Maps and names it, once; later calls find it.
  Result<SharedLoad*> Map(const std::string& transport, const std::string& address, const std::string& descriptor,
                          Instant deadline);

  void Forget(const std::string& descriptor) { mapped_.erase(descriptor); }
  // Forgets what `used` does not list: load slots that their sender replaced.
  void Retain(const std::set<std::string>& used);

 private:
  struct Mapped {
    std::unique_ptr<transport::Link> link;  // one each: a mapping lives as long as its link
    std::unique_ptr<device::SharedName> name;
    std::unique_ptr<SharedLoad> load;
  };
  Result<Mapped> MapHost(const std::string& address, const std::string& descriptor, Instant deadline);
  Result<Mapped> FindGpu(const std::string& descriptor) const;

  TransportSet& transports_;
  const Incarnation incarnation_;
  device::RefCounters* const counters_;
  std::uint64_t named_ = 0;               // names are never reused
  std::map<std::string, Mapped> mapped_;  // by descriptor
};

}  // namespace refit::runtime
