// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Sends one attempt's loads to one receiver: pack load k+1 while k is being installed (two load slots alternate).
// One memory pass: RunCopies packs and hashes straight into the slot that the engine's ranks map.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/shared_memory.h"
#include "refit/rpc/load_stream.h"
#include "refit/runtime/source.h"
#include "refit/sync/command.h"
#include "refit/transport/shm/shm_transport.h"

namespace refit::runtime {

// The load slots of one receiver (a slot of the fleet): shared-memory objects that outlive a refit and an incarnation.
// An object whose count did not come back is never reused (settled D2).
//
// Small loads go round among a few slots, so that the latencies of announcing, posting and releasing are hidden behind
// copies; four 4 MiB loads still fit the last-level cache. A tensor much larger than that has one slot of its own: its
// copy hides everything else. Bench: two slots 0.58 of the ceiling, four 0.64 (qwen3-0.6b, 16 cores).
class LoadSlotSet {
 public:
  LoadSlotSet(SlotIndex slot, transport::ShmTransport& transport) : slot_(slot), transport_(transport) {}
  ~LoadSlotSet();
  LoadSlotSet(const LoadSlotSet&) = delete;
  LoadSlotSet& operator=(const LoadSlotSet&) = delete;

  // Makes every load slot free, and large enough for these loads.
  Status Prepare(const std::vector<stream::PackedBucket>& loads, ByteCount load_bytes);
  std::size_t count() const { return slots_.size(); }
  std::vector<std::string> descriptors() const;
  MutableBytes data(std::size_t index) { return device::LoadSlot(slots_[index].object).data(); }
  // Where the load of that many bytes goes, the `turn`-th of the small ones.
  std::size_t PlaceOf(ByteCount size, std::size_t turn) const;

 private:
  struct Slot {
    ByteCount capacity = 0;
    MutableBytes object;  // the transport's
    transport::Descriptor descriptor;
  };
  Status Make(Slot& slot, ByteCount capacity);
  void Drop(Slot& slot);

  SlotIndex slot_;
  transport::ShmTransport& transport_;
  ByteCount small_ = 0;          // bytes that a small load may have
  std::size_t small_count_ = 0;  // slots_ beyond are for larger ones
  std::vector<Slot> slots_;
};

enum class Digests : std::uint8_t { kOn, kOff };  // off: for the bench only

// What ended a send early decides what it means: a receiver that left is the controller's to judge (C6), a source that
// cannot be read fails the refit.
enum class SendEnd : std::uint8_t { kComplete, kReceiverLeft, kStopped, kSourceFailed };

struct SendResult {
  SendEnd end = SendEnd::kComplete;
  Status status;
  Digest root;
  sync::TransferTotals totals;  // once, not per rank
};

// Runs until every load is released, the receiver goes away, `stop` is set, or the deadline. Thread: the stream's.
SendResult SendLoads(const rpc::OpenStream& open, Source& source, LoadSlotSet& slots, rpc::SenderStream& stream,
                     Digests digests, const std::atomic<bool>& stop, Instant deadline);

}  // namespace refit::runtime
