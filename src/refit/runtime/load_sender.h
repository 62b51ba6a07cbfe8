// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Sends one attempt's loads to one receiver: pack load k+1 while k is being installed (two load slots alternate).
// One memory pass: RunCopies packs and hashes straight into the slot that the engine's ranks map.

#pragma once

#include <array>
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

inline constexpr std::size_t kLoadSlots = 2;  // per receiver: one packed while the other is installed

// The load slots of one receiver (a slot of the fleet): shared-memory objects that outlive a refit and an incarnation. An
// object whose count did not come back is never reused (settled D2).
class LoadSlotSet {
 public:
  LoadSlotSet(SlotIndex slot, transport::ShmTransport& transport) : slot_(slot), transport_(transport) {}
  ~LoadSlotSet();
  LoadSlotSet(const LoadSlotSet&) = delete;
  LoadSlotSet& operator=(const LoadSlotSet&) = delete;

  // Makes every load slot free and at least `capacity` bytes large.
  Status Prepare(ByteCount capacity);
  std::vector<std::string> descriptors() const;
  MutableBytes data(std::size_t index) { return device::LoadSlot(slots_[index].object).data(); }

 private:
  struct Slot {
    MutableBytes object;  // the transport's
    transport::Descriptor descriptor;
  };
  Status Make(Slot& slot);
  void Drop(Slot& slot);

  SlotIndex slot_;
  transport::ShmTransport& transport_;
  ByteCount capacity_ = 0;
  std::array<Slot, kLoadSlots> slots_;
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
