// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/load_sender.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/hash.h"
#include "refit/exec/clock.h"

namespace refit::runtime {
namespace {

constexpr Duration kStopCheckInterval = std::chrono::milliseconds(100);

// Whether the source can give its bytes in that way.
bool CanServe(const Source& source, const rpc::Offer& offer) {
  const bool loads = offer.unit == stream::PackUnit::kLoad;
  if (offer.transport == "shm") {
    return loads && !source.gpu().has_value();
  }
  if (offer.transport == "cuda_ipc") {
    return source.gpu().has_value();
  }
  return !loads && (offer.transport == "nixl" || (offer.transport == "loopback" && !source.gpu().has_value()));
}

std::string Wishes(const std::vector<rpc::Offer>& offers) {
  std::string text;
  for (const rpc::Offer& offer : offers) {
    text += StrCat(text.empty() ? "" : " or ", offer.transport);
  }
  return text;
}

constexpr ByteCount kSmallLoad = 16 * kMiB;  // at least; a slot for small loads holds any load up to this or load_bytes
constexpr std::size_t kSmallSlots = 4;       // of at most kSmallLoad
constexpr std::size_t kPieceSlots = 6;
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

Result<SlotMemory*> LoadSlotSet::MemoryFor(const rpc::Offer& offer, const Source& source) {
  auto& memory = memories_[offer.transport];
  if (memory == nullptr) {
    if (offer.transport == transports_.shm().name()) {
      memory = MakeShmSlots(slot_, transports_.shm());
    } else {
      REFIT_ASSIGN_OR_RETURN(transport::Transport* const transport, transports_.Get(offer.transport));
      memory = MakeBlockSlots(*transport, source.gpu());
    }
  }
  return memory.get();
}

Result<SendPlan> LoadSlotSet::Prepare(const rpc::OpenStream& open, Source& source) {
  const auto taken = std::find_if(open.offers.begin(), open.offers.end(),
                                  [&source](const rpc::Offer& offer) { return CanServe(source, offer); });
  if (taken == open.offers.end()) {
    return FailedPrecondition(
        StrCat("engine ", slot_, " takes its weights by ", Wishes(open.offers), ", which cannot carry ",
               source.gpu().has_value() ? StrCat("the memory of GPU ", *source.gpu()) : "mapped files"),
        "give the agent another --transport, or the policy worker another --device");
  }
  REFIT_ASSIGN_OR_RETURN(auto buckets, source.Cut(taken->unit, taken->bytes));
  REFIT_ASSIGN_OR_RETURN(memory_, MemoryFor(*taken, source));
  const ByteCount largest = stream::LargestBucket(*buckets);
  const bool pieces = taken->unit == stream::PackUnit::kPiece;
  small_ = pieces ? largest : std::min(largest, std::max(taken->bytes, kSmallLoad));
  small_count_ = std::min(buckets->size(), pieces                       ? kPieceSlots
                                           : taken->bytes <= kSmallLoad ? kSmallSlots
                                                                        : kSlotsOfLargeLoads);
  capacities_.assign(small_count_, small_);
  if (largest > small_) {
    capacities_.push_back(largest);
  }
  std::shared_ptr<const Source::EntrySums> sums;
  if (source.gpu().has_value()) {
    REFIT_ASSIGN_OR_RETURN(sums, source.GpuSums(taken->unit, taken->bytes));
    if (packing_ == nullptr) {
      REFIT_ASSIGN_OR_RETURN(packing_, device::GpuQueue::Make(*source.gpu()));
    }
  }
  REFIT_RETURN_IF_ERROR(memory_->Prepare(capacities_, open.stamp.incarnation));
  REFIT_ASSIGN_OR_RETURN(transport::Transport* const transport, transports_.Get(taken->transport));
  const bool gpu_hash = source.gpu().has_value() || taken->digests == rpc::DigestKind::kGpuHash;
  return SendPlan{.opened = {.attempt = open.stamp.attempt,
                             .offer = static_cast<std::uint32_t>(taken - open.offers.begin()),
                             .digests = gpu_hash ? rpc::DigestKind::kGpuHash : rpc::DigestKind::kXxh3,
                             .transport_address = transport->Address(),
                             .slots = memory_->descriptors(),
                             .slot_bytes = *std::max_element(capacities_.begin(), capacities_.end()),
                             .total_bytes = source.delivered().total_size()},
                  .buckets = std::move(buckets),
                  .sums = std::move(sums)};
}

std::size_t LoadSlotSet::PlaceOf(ByteCount size, std::size_t turn) const {
  return size > small_ ? small_count_ : turn % small_count_;
}

namespace {

// One stream's send: packs ahead as far as slots and packer let it, announces in order.
class Sending {
 public:
  Sending(const rpc::OpenStream& open, const SendPlan& plan, Source& source, LoadSlotSet& slots,
          rpc::SenderStream& stream, LoadPacker& packer, const std::atomic<bool>& stop, Instant deadline)
      : open_(open),
        plan_(plan),
        source_(source),
        slots_(slots),
        stream_(stream),
        packer_(packer),
        stop_(stop),
        deadline_(deadline),
        occupied_(slots.count()) {}

  SendResult Run() {
    std::size_t turn = 0;
    for (const stream::PackedBucket& packed : *plan_.buckets) {
      const std::size_t slot = slots_.PlaceOf(packed.bucket.used, turn++);
      while (occupied_[slot].has_value()) {
        // Nobody gives back what was not announced yet.
        SendResult early = started_.empty() ? TakeRelease(open_, stream_, occupied_, stop_, deadline_) : Announce();
        if (!early.status.ok()) {
          return early;
        }
      }
      if (const Status status = packer_.Start(packed, slots_.data(slot)); !status.ok()) {
        return SourceFailed(status);
      }
      occupied_[slot] = packed.bucket.seq;
      started_.push_back({&packed, slot});
      while (started_.size() >= packer_.depth()) {
        if (SendResult early = Announce(); !early.status.ok()) {
          return early;
        }
      }
    }
    while (!started_.empty()) {
      if (SendResult early = Announce(); !early.status.ok()) {
        return early;
      }
    }
    while (occupied_.any()) {
      if (SendResult early = TakeRelease(open_, stream_, occupied_, stop_, deadline_); !early.status.ok()) {
        return early;
      }
    }
    return SendResult{SendEnd::kComplete, OkStatus(), {}, totals_};
  }

 private:
  struct Started {
    const stream::PackedBucket* packed = nullptr;
    std::size_t slot = 0;
  };

  SendResult Announce() {
    const Started started = started_.front();
    started_.pop_front();
    const auto digest = packer_.Finish(deadline_);
    if (!digest.has_value()) {
      return SourceFailed(digest.status());
    }
    const stream::Bucket& bucket = started.packed->bucket;
    const Status sent = stream_.Send(rpc::LoadAnnouncement{.attempt = open_.stamp.attempt,
                                                           .incarnation = open_.stamp.incarnation,
                                                           .slot_index = static_cast<std::uint32_t>(started.slot),
                                                           .bucket = bucket,
                                                           .digest = *digest});
    if (!sent.ok()) {
      return Ended(SendEnd::kReceiverLeft, sent.WithContext(StrCat("engine ", open_.slot)));
    }
    for (const stream::Entry& entry : bucket.entries) {
      totals_.tensors += entry.chunk_offset == 0 ? 1U : 0U;
      totals_.bytes += entry.chunk_size;  // gaps between tensors are nobody's
    }
    totals_.loads += 1;
    return {};
  }

  SendResult SourceFailed(const Status& status) const {
    return Ended(SendEnd::kSourceFailed, status.WithContext(StrCat("source ", source_.folder())));
  }

  const rpc::OpenStream& open_;
  const SendPlan& plan_;
  Source& source_;
  LoadSlotSet& slots_;
  rpc::SenderStream& stream_;
  LoadPacker& packer_;
  const std::atomic<bool>& stop_;
  const Instant deadline_;
  Occupancy occupied_;
  std::deque<Started> started_;
  sync::TransferTotals totals_;
};

}  // namespace

SendResult SendLoads(const rpc::OpenStream& open, const SendPlan& plan, Source& source, LoadSlotSet& slots,
                     rpc::SenderStream& stream, Digests digests, const std::atomic<bool>& stop, Instant deadline) {
  const auto packer = LoadPacker::Make(source, digests, plan.opened.digests, slots.packing(), plan.sums.get());
  SendResult result = Sending(open, plan, source, slots, stream, *packer, stop, deadline).Run();
  if (result.end != SendEnd::kComplete) {
    // Pieces are fenced by the receiver before anybody asks again (RX-XFER-05); loads are read by its engine's ranks.
    if (open.offers[plan.opened.offer].unit == stream::PackUnit::kLoad) {
      slots.Unsettle();
    }
    return result;
  }
  if (digests == Digests::kOn) {
    const auto hasher = device::MakeDigestHasher();
    result.root = weights::RootDigest(source.delivered(), packer->tensor_digests(), *hasher);
  }
  return result;
}

}  // namespace refit::runtime
