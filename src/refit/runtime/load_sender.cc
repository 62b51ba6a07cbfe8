// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/load_sender.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/hash.h"
#include "refit/exec/clock.h"
#include "refit/observe/log.h"
#include "refit/stream/send_flow.h"

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

constexpr ByteCount kSmallLoad = 16 * kMiB;  // at least; a slot for small loads holds any load up to this or load_bytes
constexpr std::size_t kSmallSlots = 4;       // of at most kSmallLoad
constexpr std::size_t kPieceSlots = 6;
constexpr std::size_t kSlotsOfLargeLoads = 2;  // where load_bytes is larger: memory counts, latencies do not

SendResult Ended(SendEnd end, Status status) { return {end, std::move(status), {}, {}}; }

// Waits for one release that frees a slot; kComplete when it came. Counts the time in which it waited, not the time in
// which this process was stopped: what came meanwhile is read first.
SendResult TakeRelease(const rpc::OpenStream& open, rpc::SenderStream& stream, stream::SlotLedger& ledger,
                       const std::atomic<bool>& stop, Instant deadline) {
  for (Duration waited{}; true; waited += kStopCheckInterval) {
    if (stop) {
      return Ended(SendEnd::kStopped, Aborted("the controller stopped the transfer"));
    }
    const Instant now = exec::Now();
    if (now >= deadline || waited >= open.patience) {
      return Ended(SendEnd::kReceiverLeft,
                   DeadlineExceeded(StrCat("engine ", open.slot, " did not give its load slot back in time")));
    }
    const auto release = stream.NextRelease(std::min(deadline, now + kStopCheckInterval));
    if (release.has_value() && ledger.Release(release->attempt, release->seq)) {
      return {};
    }
    if (!release.has_value() && stream.broken()) {
      return Ended(SendEnd::kReceiverLeft, Unavailable(StrCat("engine ", open.slot, " left its load stream")));
    }
  }
}

}  // namespace

std::string OfferedTransports(const std::vector<rpc::Offer>& offers) {
  std::string text;
  for (const rpc::Offer& offer : offers) {
    text += StrCat(text.empty() ? "" : " or ", offer.transport);
  }
  return text;
}

Result<LoadSlotSet::Slots*> LoadSlotSet::SlotsFor(const rpc::Offer& offer, const Source& source) {
  Slots& slots = by_transport_[offer.transport];
  if (slots.memory == nullptr) {
    if (offer.transport == transports_.shm().name()) {
      slots.memory = MakeShmSlots(slot_, transports_.shm());
    } else {
      REFIT_ASSIGN_OR_RETURN(transport::Transport* const transport, transports_.Get(offer.transport));
      slots.memory = MakeBlockSlots(*transport, source.gpu());
    }
  }
  return &slots;
}

Result<SendPlan> LoadSlotSet::Prepare(const rpc::OpenStream& open, Source& source) {
  const auto taken = std::find_if(open.offers.begin(), open.offers.end(),
                                  [&source](const rpc::Offer& offer) { return CanServe(source, offer); });
  if (taken == open.offers.end()) {
    return FailedPrecondition(
        StrCat("engine ", slot_, " takes its weights by ", OfferedTransports(open.offers), ", which cannot carry ",
               source.gpu().has_value() ? StrCat("the memory of GPU ", *source.gpu()) : "mapped files"),
        "give the agent another --transport, or the policy worker another --device");
  }
  REFIT_ASSIGN_OR_RETURN(auto buckets, source.Cut(taken->unit, taken->bytes));
  REFIT_ASSIGN_OR_RETURN(current_, SlotsFor(*taken, source));
  SlotMemory& memory = *current_->memory;
  const ByteCount largest = stream::LargestBucket(*buckets);
  const bool pieces = taken->unit == stream::PackUnit::kPiece;
  small_ = pieces ? largest : std::min(largest, std::max(taken->bytes, kSmallLoad));
  small_count_ = std::min(buckets->size(), pieces                       ? kPieceSlots
                                           : taken->bytes <= kSmallLoad ? kSmallSlots
                                                                        : kSlotsOfLargeLoads);
  capacities_.assign(small_count_, std::max(small_, kProofBytes));
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
  stream::SlotLedger& ledger = current_->ledger;
  stream::SlotReview review;
  if (open.purpose == rpc::StreamPurpose::kProve) {
    review = ledger.Bind(open.stamp.incarnation, taken->unit, memory.readers(), capacities_.size());
  } else {
    REFIT_ASSIGN_OR_RETURN(review, ledger.Open(open.stamp.attempt, open.stamp.incarnation, taken->unit,
                                               memory.readers(), capacities_.size()));
  }
  REFIT_RETURN_IF_ERROR(memory.Prepare(capacities_, review));
  REFIT_ASSIGN_OR_RETURN(transport::Transport* const transport, transports_.Get(taken->transport));
  const bool gpu_hash = source.gpu().has_value() || taken->digests == rpc::DigestKind::kGpuHash;
  return SendPlan{.opened = {.attempt = open.stamp.attempt,
                             .offer = static_cast<std::uint32_t>(taken - open.offers.begin()),
                             .digests = gpu_hash ? rpc::DigestKind::kGpuHash : rpc::DigestKind::kXxh3,
                             .transport_address = transport->Address(),
                             .slots = memory.descriptors(),
                             .slot_bytes = *std::max_element(capacities_.begin(), capacities_.end()),
                             .total_bytes = source.delivered().total_size(),
                             .sender = {}},
                  .buckets = std::move(buckets),
                  .sums = std::move(sums)};
}

std::size_t LoadSlotSet::PlaceOf(ByteCount size, std::size_t turn) const {
  return size > small_ ? small_count_ : turn % small_count_;
}

namespace {

std::vector<std::size_t> PlacesOf(const std::vector<stream::PackedBucket>& buckets, const LoadSlotSet& slots) {
  std::vector<std::size_t> places;
  places.reserve(buckets.size());
  for (const stream::PackedBucket& packed : buckets) {
    places.push_back(slots.PlaceOf(packed.bucket.used, places.size()));
  }
  return places;
}

// One stream's send: carries out what its flow says.
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
        flow_(slots.ledger(), PlacesOf(*plan.buckets, slots), packer.depth()) {}

  SendResult Run() {
    SendResult result;
    for (stream::SendStep step = flow_.Next(); step.kind != stream::SendStep::Kind::kEnd; step = flow_.Next()) {
      if (SendResult early = Take(step); !early.status.ok() && result.status.ok()) {
        flow_.Stop();
        result = std::move(early);
      }
    }
    if (result.status.ok()) {
      result.totals = totals_;
    }
    return result;
  }

 private:
  SendResult Take(const stream::SendStep& step) {
    switch (step.kind) {
      case stream::SendStep::Kind::kFill:
        if (const Status status = packer_.Start((*plan_.buckets)[step.bucket], slots_.data(step.slot)); !status.ok()) {
          return SourceFailed(status);
        }
        return {};
      case stream::SendStep::Kind::kAnnounce: return Announce((*plan_.buckets)[step.bucket].bucket, step.slot);
      case stream::SendStep::Kind::kAwaitRelease: return TakeRelease(open_, stream_, slots_.ledger(), stop_, deadline_);
      case stream::SendStep::Kind::kSkip:  // files and GPU memory are read only to be packed
      case stream::SendStep::Kind::kEnd: return {};
    }
    return {};
  }

  SendResult Announce(const stream::Bucket& bucket, std::size_t slot) {
    const auto digest = packer_.Finish(deadline_);
    if (!digest.has_value()) {
      return SourceFailed(digest.status());
    }
    const Status sent = stream_.Send(rpc::LoadAnnouncement{.attempt = open_.stamp.attempt,
                                                           .incarnation = open_.stamp.incarnation,
                                                           .slot_index = static_cast<std::uint32_t>(slot),
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
  stream::SendFlow flow_;
  sync::TransferTotals totals_;
};

}  // namespace

SendResult SendLoads(const rpc::OpenStream& open, const SendPlan& plan, Source& source, LoadSlotSet& slots,
                     rpc::SenderStream& stream, Digests digests, const std::atomic<bool>& stop, Instant deadline) {
  const auto packer = LoadPacker::Make(source, digests, plan.opened.digests, slots.packing(), plan.sums.get());
  const std::uint64_t refused = slots.ledger().refused();
  SendResult result = Sending(open, plan, source, slots, stream, *packer, stop, deadline).Run();
  if (const std::uint64_t more = slots.ledger().refused() - refused; more > 0) {
    observe::LogWarning(StrCat("engine ", open.slot, ": ", more, " releases of other attempts or loads were refused"));
  }
  if (result.end == SendEnd::kComplete && digests == Digests::kOn) {
    const auto hasher = device::MakeDigestHasher();
    result.root = weights::RootDigest(source.delivered(), packer->tensor_digests(), *hasher);
  }
  return result;
}

}  // namespace refit::runtime
