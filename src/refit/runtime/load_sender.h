// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Sends one attempt's buckets to one receiver: loads that its engine's ranks map in place, or pieces that it fetches.
// Bucket k+1 is packed while k is being taken.

#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/cuda.h"
#include "refit/device/memory.h"
#include "refit/peer/send_roster.h"
#include "refit/rpc/load_stream.h"
#include "refit/runtime/load_packer.h"
#include "refit/runtime/slot_memory.h"
#include "refit/runtime/source.h"
#include "refit/runtime/transport_set.h"
#include "refit/stream/slot_ledger.h"

namespace refit::runtime {

inline constexpr ByteCount kProofBytes = 4 * kKiB;  // of a bind's handshake; every slot can hold them

// "shm or cuda_ipc", for people.
std::string OfferedTransports(const std::vector<rpc::Offer>& offers);

// What a stream sends, as sender and receiver agreed on it.
struct SendPlan {
  rpc::StreamOpened opened;
  std::shared_ptr<const std::vector<stream::PackedBucket>> buckets;
  std::shared_ptr<const Source::EntrySums> sums;  // of a source on a GPU
};

// The slots of one receiver (a slot of the fleet), per transport: they outlive a refit and an incarnation.
//
// Small loads go round among a few slots, so that the latencies of announcing, posting and releasing are hidden behind
// copies; four 4 MiB loads still fit the last-level cache. A tensor much larger than that has one slot of its own: its
// copy hides everything else. Bench: two slots 0.58 of the ceiling, four 0.64 (qwen3-0.6b, 16 cores). Pieces go round
// among a few more, since each is pulled, checked and released.
class LoadSlotSet {
 public:
  LoadSlotSet(SlotIndex slot, TransportSet& transports) : slot_(slot), transports_(transports) {}

  // Takes the first offer that this source can serve, cuts it accordingly and makes every slot free and large enough.
  // ABORTED where the receiver had a stream of that attempt or of a newer one, but for a handshake, which sends
  // nothing. FAILED_PRECONDITION when there is none: says what the receiver wants and what this worker has.
  Result<SendPlan> Prepare(const rpc::OpenStream& open, Source& source);
  std::size_t count() const { return capacities_.size(); }
  device::Memory data(std::size_t index) const { return current_->memory->data(index); }
  // Where the bucket of that many bytes goes, the `turn`-th of the small ones.
  std::size_t PlaceOf(ByteCount size, std::size_t turn) const;
  stream::SlotLedger& ledger() { return current_->ledger; }
  device::GpuQueue* packing() const { return packing_.get(); }  // null for a source on the host

 private:
  struct Slots {
    std::unique_ptr<SlotMemory> memory;
    stream::SlotLedger ledger;
  };
  Result<Slots*> SlotsFor(const rpc::Offer& offer, const Source& source);

  const SlotIndex slot_;
  TransportSet& transports_;
  std::map<std::string, Slots> by_transport_;
  Slots* current_ = nullptr;  // those of the last Prepare
  std::vector<ByteCount> capacities_;
  std::unique_ptr<device::GpuQueue> packing_;  // making one costs page-locked memory
  ByteCount small_ = 0;                        // bytes that a small load may have
  std::size_t small_count_ = 0;                // slots beyond are for larger ones
};

using peer::SendEnd;
using peer::SendResult;

// Runs until every load is released, the receiver goes away, `stop` is set, or the deadline. Thread: the stream's.
// plan: of the slots' last Prepare, already announced by StreamOpened.
SendResult SendLoads(const rpc::OpenStream& open, const SendPlan& plan, Source& source, LoadSlotSet& slots,
                     rpc::SenderStream& stream, Digests digests, const std::atomic<bool>& stop, Instant deadline);

}  // namespace refit::runtime
