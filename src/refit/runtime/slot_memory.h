// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory of a policy worker's slots for one receiver: what it packs into and peers map or fetch. One kind per way
// of sharing: POSIX objects that torch maps (transport shm), or one block of host or GPU memory, exported slot by slot.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/device/memory.h"
#include "refit/stream/slot_ledger.h"
#include "refit/transport/shm/shm_transport.h"
#include "refit/transport/transport.h"

namespace refit::runtime {

// Thread: one at a time.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  // Makes slots of these capacities at least; what becomes of the memory that there is, the review says.
  virtual Status Prepare(std::span<const ByteCount> capacities, const stream::SlotReview& review) = 0;
  virtual std::vector<stream::Readers> readers() const = 0;  // of each slot that there is
  virtual device::Memory data(std::size_t index) const = 0;
  virtual std::vector<std::string> descriptors() const = 0;
};

std::unique_ptr<SlotMemory> MakeShmSlots(SlotIndex slot, transport::ShmTransport& transport);
// gpu: whose memory the slots are; nothing: the host's.
std::unique_ptr<SlotMemory> MakeBlockSlots(transport::Transport& transport, std::optional<device::GpuOrdinal> gpu);

}  // namespace refit::runtime
