// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/load_sender.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/device/hash.h"
#include "refit/exec/clock.h"

namespace refit::runtime {
namespace {

constexpr Duration kStopCheckInterval = std::chrono::milliseconds(100);

constexpr ByteCount kSmallLoad = 16 * kMiB;  // at least; a slot for small loads holds any load up to this or load_bytes
constexpr std::size_t kSmallSlots = 4;       // of at most kSmallLoad
constexpr std::size_t kSlotsOfLargeLoads = 2;  // where load_bytes is larger: memory counts, latencies do not

// Which load occupies each slot until it is released.
class Occupancy {
 public:
  explicit Occupancy(std::size_t slots) : loads_(slots) {}
  std::optional<LoadSeq>& operator[](std::size_t slot) { return loads_[slot]; }
  bool Give(LoadSeq seq) {
    for (auto& load : loads_) {
      if (load == seq) {
        load.reset();
        return true;
      }
    }
    return false;
  }
  bool any() const {
    return std::any_of(loads_.begin(), loads_.end(), [](const auto& load) { return load.has_value(); });
  }

 private:
  std::vector<std::optional<LoadSeq>> loads_;
};

SendResult Ended(SendEnd end, Status status) { return {end, std::move(status), {}, {}}; }

// Waits for one release of this attempt; kComplete when it came.
SendResult TakeRelease(const rpc::OpenStream& open, rpc::SenderStream& stream, Occupancy& occupied,
                       const std::atomic<bool>& stop, Instant deadline) {
  while (true) {
    if (stop) {
      return Ended(SendEnd::kStopped, Aborted("the controller stopped the transfer"));
    }
    const Instant now = exec::Now();
    if (now >= deadline) {
      return Ended(SendEnd::kReceiverLeft,
                   DeadlineExceeded(StrCat("engine ", open.slot, " did not give its load slot back in time")));
    }
    const auto release = stream.NextRelease(std::min(deadline, now + kStopCheckInterval));
    // A release of another attempt says nothing about this one's slots (RX-XFER-02).
    const bool ours = release.has_value() && REFIT_MUTANT("RX-XFER-02/take-any-attempts-release",
                                                          release->attempt == open.stamp.attempt, true);
    if (ours && occupied.Give(release->seq)) {
      return {};
    }
    if (!release.has_value() && stream.broken()) {
      return Ended(SendEnd::kReceiverLeft, Unavailable(StrCat("engine ", open.slot, " left its load stream")));
    }
  }
}

}  // namespace

LoadSlotSet::~LoadSlotSet() {
  for (Slot& slot : slots_) {
    Drop(slot);
  }
}

void LoadSlotSet::Drop(Slot& slot) {
  if (!slot.object.empty()) {
    transport_.Release(slot.object);
    slot = {};
  }
}

Status LoadSlotSet::Make(Slot& slot, ByteCount capacity) {
  Drop(slot);  // gives its pages back before the new object asks for some
  REFIT_ASSIGN_OR_RETURN(slot.object,
                         transport_.Allocate(StrCat("load-", slot_), device::LoadSlot::ObjectSize(capacity)));
  slot.capacity = capacity;
  device::LoadSlot(slot.object).Initialise();
  REFIT_ASSIGN_OR_RETURN(slot.descriptor, transport_.Export(slot.object));
  return OkStatus();
}

Status LoadSlotSet::Prepare(const std::vector<stream::PackedBucket>& loads, ByteCount load_bytes) {
  const ByteCount largest = stream::LargestBucket(loads);
  small_ = std::min(largest, std::max(load_bytes, kSmallLoad));
  small_count_ = load_bytes <= kSmallLoad ? kSmallSlots : kSlotsOfLargeLoads;
  const std::size_t count = small_count_ + (largest > small_ ? 1 : 0);
  for (std::size_t i = count; i < slots_.size(); ++i) {
    Drop(slots_[i]);
  }
  slots_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    Slot& slot = slots_[i];
    const ByteCount capacity = i < small_count_ ? small_ : largest;
    if (slot.object.empty() || slot.capacity < capacity || !device::LoadSlot(slot.object).free()) {
      REFIT_RETURN_IF_ERROR(Make(slot, capacity));
    }
  }
  return OkStatus();
}

std::size_t LoadSlotSet::PlaceOf(ByteCount size, std::size_t turn) const {
  return size > small_ ? small_count_ : turn % small_count_;
}

std::vector<std::string> LoadSlotSet::descriptors() const {
  std::vector<std::string> descriptors;
  for (const Slot& slot : slots_) {
    descriptors.push_back(slot.descriptor.text);
  }
  return descriptors;
}

SendResult SendLoads(const rpc::OpenStream& open, Source& source, LoadSlotSet& slots, rpc::SenderStream& stream,
                     Digests digests, const std::atomic<bool>& stop, Instant deadline) {
  const auto loads = source.Loads(open.load_bytes);
  if (!loads.has_value()) {
    return Ended(SendEnd::kSourceFailed, loads.status());
  }
  const auto hasher = device::MakeDigestHasher();
  DigestHasher* const hash = digests == Digests::kOn ? hasher.get() : nullptr;
  std::vector<Digest> tensor_digests;
  std::vector<Digest> load_digests;
  Occupancy occupied(slots.count());
  std::size_t turn = 0;
  SendResult result;
  for (const stream::PackedBucket& load : **loads) {
    const std::size_t slot = slots.PlaceOf(load.bucket.used, turn++);
    while (occupied[slot].has_value()) {
      if (SendResult early = TakeRelease(open, stream, occupied, stop, deadline); !early.status.ok()) {
        return early;
      }
    }
    if (Status status = device::RunCopies(load.copies, source.tensors(), slots.data(slot).subspan(0, load.bucket.used),
                                          load.bucket.entries.size(), hash, load_digests);
        !status.ok()) {
      return Ended(SendEnd::kSourceFailed, status.WithContext(StrCat("source ", source.folder())));
    }
    rpc::LoadAnnouncement announcement{.attempt = open.stamp.attempt,
                                       .incarnation = open.stamp.incarnation,
                                       .slot_index = static_cast<std::uint32_t>(slot),
                                       .bucket = load.bucket,
                                       .digest = {}};
    if (hash != nullptr) {
      announcement.digest = stream::BucketDigest(load.bucket, load_digests, *hash);
      tensor_digests.insert(tensor_digests.end(), load_digests.begin(), load_digests.end());
    }
    occupied[slot] = load.bucket.seq;
    if (Status status = stream.Send(announcement); !status.ok()) {
      return Ended(SendEnd::kReceiverLeft, status.WithContext(StrCat("engine ", open.slot)));
    }
    result.totals.tensors += load.bucket.entries.size();
    result.totals.bytes += load.bucket.used;
    result.totals.loads += 1;
  }
  while (occupied.any()) {
    if (SendResult early = TakeRelease(open, stream, occupied, stop, deadline); !early.status.ok()) {
      return early;
    }
  }
  if (hash != nullptr) {
    result.root = weights::RootDigest(source.delivered(), tensor_digests, *hash);
  }
  return result;
}

}  // namespace refit::runtime
