// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/load_puller.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/gpu_hash.h"
#include "refit/device/hash.h"
#include "refit/exec/clock.h"
#include "refit/runtime/load_packer.h"

namespace refit::runtime {
namespace {

constexpr std::size_t kAnnouncements = 64;  // a sender has fewer slots
constexpr Duration kIdleWait = std::chrono::milliseconds(100);
constexpr Duration kPollWait = std::chrono::microseconds(20);  // between two looks at what is under way
constexpr Duration kFenceDeadline = std::chrono::seconds(2);

}  // namespace

Result<std::unique_ptr<LoadPuller>> LoadPuller::Start(LoadPullerOptions options, TransferStream& channel,
                                                      ReceiverMemory::LinkEnd& end) {
  if (end.hashes != nullptr && options.opened.digests != rpc::DigestKind::kGpuHash) {
    return Internal(StrCat(options.whom, " sends digests that a GPU cannot check"));
  }
  std::unique_ptr<LoadPuller> puller(new LoadPuller(std::move(options), channel, end));
  puller->reader_ = std::thread([raw = puller.get()] { raw->Read(); });
  puller->puller_ = std::thread([raw = puller.get()] {
    Status status = raw->Pull();
    raw->shared_.With([&status](Shared& shared) { shared.ended = std::move(status); });
  });
  return puller;
}

LoadPuller::LoadPuller(LoadPullerOptions options, TransferStream& channel, ReceiverMemory::LinkEnd& end)
    : options_(std::move(options)),
      channel_(channel),
      link_(*end.link),
      memory_(end.memory),
      assembler_(options_.opened.slot_bytes, options_.load_bytes),
      hasher_(device::MakeDigestHasher()),
      hashes_(end.hashes.get()),
      announced_(kAnnouncements) {}

LoadPuller::~LoadPuller() {
  Stop();
  // Not where the stream ended well: the last releases may still be on their way, and nobody reads any more.
  if (!shared_.With([](const Shared& shared) { return shared.ended.has_value() && shared.ended->ok(); })) {
    channel_.Cancel();
  }
  if (reader_.joinable()) {
    reader_.join();
  }
  if (puller_.joinable()) {
    puller_.join();
  }
  if (hashes_ != nullptr && !checking_.empty()) {
    static_cast<void>(hashes_->Wait(*checking_.back().hashed, kNever));  // it writes into checking_
  }
  // Late writes end here, or their memory is never used again.
  const bool late =
      !fetching_.empty() && link_.Fence(exec::Now() + kFenceDeadline) == transport::FenceOutcome::kUnknown;
  memory_.EndTransfer(late ? stream::LateReads::kPossible : stream::LateReads::kNone);
}

void LoadPuller::Stop() {
  announced_.Close();
  shared_.With([](Shared& shared) { shared.stopped = true; });
}

void LoadPuller::Read() {
  while (!announced_.closed()) {
    Result<rpc::LoadAnnouncement> news = channel_.Next();
    const bool over = !news.has_value() || news->bucket.is_last;
    if (!announced_.Push(std::move(news)).ok() || over) {
      return;
    }
  }
}

Status LoadPuller::Pull() {
  while (!saw_last_ || !fetching_.empty() || !checking_.empty()) {
    if (exec::Now() >= options_.deadline) {
      return DeadlineExceeded(StrCat(options_.whom, " did not send its weights within the transfer's budget"));
    }
    REFIT_ASSIGN_OR_RETURN(const bool moved, Advance());
    REFIT_RETURN_IF_ERROR(TakeNews(moved));
    if (announced_.closed()) {
      return Aborted("the transfer was stopped");
    }
  }
  return OkStatus();
}

// Waits for the next piece: not a moment while something moves, a short one while copies run, else until there is news.
Status LoadPuller::TakeNews(bool moved) {
  const bool under_way = !fetching_.empty() || !checking_.empty();
  const bool spins = under_way && (hashes_ != nullptr || saw_last_);  // a GPU moves a piece in the time of two naps
  if (spins && !moved) {
    std::this_thread::yield();
  }
  if (saw_last_) {
    return OkStatus();
  }
  const Duration wait = moved || spins ? Duration(0) : under_way ? kPollWait : kIdleWait;
  auto news = announced_.Pop(exec::Now() + wait);
  if (!news.has_value()) {
    return OkStatus();
  }
  if (!news->has_value()) {
    return news->status().WithContext(options_.whom);
  }
  return Begin(*std::move(*news));
}

// Places the piece and starts to fetch it.
Status LoadPuller::Begin(rpc::LoadAnnouncement announcement) {
  auto step = assembler_.Accept(announcement.bucket);
  if (!step.has_value()) {
    return step.status().WithContext(options_.whom);
  }
  for (const stream::OpenedLoad& opened : step->opened) {
    REFIT_RETURN_IF_ERROR(OpenLoad(opened));
  }
  saw_last_ = step->is_last;
  times_.last_announced = exec::Now();
  if (times_.first_announced == Instant()) {
    times_.first_announced = times_.last_announced;
  }
  Piece& piece = fetching_.emplace_back();
  piece.seq = announcement.bucket.seq;
  piece.bucket = std::move(announcement.bucket);
  piece.digest = announcement.digest;
  piece.placements = std::move(step->placements);
  piece.closes = std::move(step->closed);
  const transport::Descriptor descriptor{options_.opened.slots[announcement.slot_index]};
  return Fetch(piece, descriptor);
}

// Waits until the load two before it has been let go: it had the same place.
Status LoadPuller::OpenLoad(const stream::OpenedLoad& opened) {
  if (opened.capacity > std::max(options_.load_bytes, options_.opened.total_bytes)) {
    return DataLoss(StrCat(options_.whom, " announced a tensor of ", opened.capacity, " bytes in a stream of ",
                           options_.opened.total_bytes));
  }
  bool stopped = false;
  while (true) {
    const Instant now = exec::Now();
    const bool free = shared_.Wait(
        [&](const Shared& shared) {
          stopped = shared.stopped;
          return stopped || shared.turns.MayOpen(opened.number);
        },
        std::min(options_.deadline, now + kPollWait));
    if (stopped) {
      return Aborted("the transfer was stopped");
    }
    if (free) {
      break;
    }
    if (now >= options_.deadline) {
      return DeadlineExceeded("the engine let go of no load within the transfer's budget");
    }
    REFIT_RETURN_IF_ERROR(Advance().status());  // what is under way completes the load that is waited for
  }
  const ByteCount capacity = opened.capacity > options_.load_bytes
                                 ? opened.capacity
                                 : std::min(options_.load_bytes, std::max<ByteCount>(options_.opened.total_bytes, 1));
  REFIT_ASSIGN_OR_RETURN(loads_[opened.number], memory_.Place(opened.number, capacity));
  return OkStatus();
}

device::Memory LoadPuller::Target(const stream::Placement& placement) const {
  return loads_.at(placement.load)->data().Part(placement.target_offset, placement.size);
}

// Neighbours that stay neighbours are one read.
Status LoadPuller::Fetch(Piece& piece, const transport::Descriptor& descriptor) {
  for (std::size_t i = 0; i < piece.placements.size();) {
    stream::Placement run = piece.placements[i++];
    for (; i < piece.placements.size(); ++i) {
      const stream::Placement& next = piece.placements[i];
      const bool joins = next.load == run.load && next.source_offset == run.source_offset + run.size &&
                         next.target_offset == run.target_offset + run.size;
      if (!joins) {
        break;
      }
      run.size += next.size;
    }
    if (run.size == 0) {
      continue;
    }
    const auto op = link_.Fetch(descriptor, {run.source_offset, run.size}, Target(run));
    if (!op.has_value()) {
      return op.status().WithContext(options_.whom);
    }
    piece.ops.push_back(*op);
  }
  return OkStatus();
}

Result<bool> LoadPuller::Advance() {
  bool moved = false;
  while (!fetching_.empty()) {
    REFIT_ASSIGN_OR_RETURN(const bool landed, Landed(fetching_.front()));
    if (!landed) {
      break;
    }
    times_.last_landed = exec::Now();
    checking_.push_back(std::move(fetching_.front()));
    fetching_.pop_front();
    moved = true;
  }
  while (!checking_.empty()) {
    REFIT_ASSIGN_OR_RETURN(const bool checked, Checked(checking_.front()));
    if (!checked) {
      break;
    }
    Piece piece = std::move(checking_.front());
    checking_.pop_front();
    REFIT_RETURN_IF_ERROR(Finish(piece));
    moved = true;
  }
  return moved;
}

// Whether every read of it is done; then its hashes are on their way.
Result<bool> LoadPuller::Landed(Piece& piece) {
  for (const transport::OpId op : piece.ops) {
    switch (link_.Poll(op)) {
      case transport::OpState::kPending: return false;
      case transport::OpState::kFailed:
        return link_.error(op).WithContext(StrCat(options_.whom, ", piece ", piece.seq));
      case transport::OpState::kDone: break;
    }
  }
  if (hashes_ != nullptr) {
    std::vector<device::GpuHashPart> parts;
    parts.reserve(piece.placements.size());
    for (std::size_t i = 0; i < piece.placements.size(); ++i) {
      const stream::Entry& entry = piece.bucket.entries[i];
      REFIT_ASSIGN_OR_RETURN(const ByteCount total, weights::SizeOf(entry.spec));
      if (entry.chunk_offset % device::kGpuHashTile != 0) {
        return DataLoss(StrCat(options_.whom, " cut tensor ", entry.spec.name, " at byte ", entry.chunk_offset,
                               ", which is no multiple of ", device::kGpuHashTile));
      }
      parts.push_back({Target(piece.placements[i]).bytes.data(), entry.chunk_size, entry.chunk_offset, total});
    }
    piece.sums.resize(parts.size());
    REFIT_RETURN_IF_ERROR(hashes_->Hash(parts, piece.sums));
    REFIT_ASSIGN_OR_RETURN(piece.hashed, hashes_->Mark());
  }
  return true;
}

Result<std::vector<Digest>> LoadPuller::ChunkDigests(const Piece& piece) {
  std::vector<Digest> chunks;
  chunks.reserve(piece.placements.size());
  for (std::size_t i = 0; i < piece.placements.size(); ++i) {
    const stream::Entry& entry = piece.bucket.entries[i];
    REFIT_ASSIGN_OR_RETURN(const ByteCount total, weights::SizeOf(entry.spec));
    if (hashes_ != nullptr) {
      chunks.push_back(GpuDigest(piece.sums[i], total));
      continue;
    }
    const Bytes landed = Target(piece.placements[i]).bytes;
    if (options_.opened.digests == rpc::DigestKind::kGpuHash) {
      chunks.push_back(GpuDigest(device::GpuHashSum(landed, entry.chunk_offset, total), total));
    } else {
      hasher_->Reset();
      hasher_->Update(landed);
      chunks.push_back(hasher_->Finish());
    }
  }
  return chunks;
}

// Whether what landed is what was announced (RX-SUM, L1); DATA_LOSS when it is not.
Result<bool> LoadPuller::Checked(Piece& piece) {
  if (piece.hashed.has_value()) {
    REFIT_ASSIGN_OR_RETURN(const bool hashed, hashes_->Reached(*piece.hashed));
    if (!hashed) {
      return false;
    }
  }
  if (piece.digest.is_zero()) {
    return true;  // a bench without digests
  }
  REFIT_ASSIGN_OR_RETURN(const std::vector<Digest> chunks, ChunkDigests(piece));
  const Digest landed = stream::BucketDigest(piece.bucket, chunks, *hasher_);
  if (REFIT_MUTANT("RX-SUM-04/trust-the-link", landed != piece.digest, false)) {
    return DataLoss(StrCat(options_.whom, ": piece ", piece.seq, " landed with digest ", ToHex(landed),
                           ", announced was ", ToHex(piece.digest)),
                    "the link or a memory corrupts data: sync again, and look at that host");
  }
  return true;
}

// The sender may fill its slot again; loads that are whole go to the receive loop.
Status LoadPuller::Finish(Piece& piece) {
  REFIT_RETURN_IF_ERROR(channel_.Release(piece.seq));
  for (stream::ClosedLoad& closed : piece.closes) {
    PulledLoad pulled{loads_.at(closed.number), closed.number, closed.used, std::move(closed.tensors)};
    loads_.erase(closed.number);
    shared_.With([&pulled](Shared& shared) { shared.ready.push_back(std::move(pulled)); });
  }
  return OkStatus();
}

Result<std::optional<PulledLoad>> LoadPuller::Next() {
  std::optional<PulledLoad> next;
  std::optional<Status> ended;
  const bool news = shared_.Wait(
      [&](Shared& shared) {
        if (!shared.ready.empty()) {
          next = std::move(shared.ready.front());
          shared.ready.pop_front();
        } else if (shared.ended.has_value()) {
          ended = shared.ended;
        } else if (shared.stopped) {
          ended = Aborted("the transfer was stopped");
        }
        return next.has_value() || ended.has_value();
      },
      options_.deadline);
  if (!news) {
    return DeadlineExceeded(StrCat(options_.whom, " did not send its weights within the transfer's budget"));
  }
  if (next.has_value()) {
    return next;
  }
  REFIT_RETURN_IF_ERROR(*ended);
  return std::optional<PulledLoad>();
}

void LoadPuller::GiveBack(std::uint64_t number) {
  shared_.With([number](Shared& shared) { shared.turns.GiveBack(number); });
}

}  // namespace refit::runtime
