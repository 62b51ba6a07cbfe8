// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/load_packer.h"

#include <deque>
#include <span>
#include <utility>

#include "refit/base/check.h"
#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/device/cuda.h"
#include "refit/device/hash.h"

namespace refit::runtime {
namespace {

// Whether the entry is a part of a tensor, and its last one.
struct Chunk {
  explicit Chunk(const stream::Entry& entry)
      : total(*weights::SizeOf(entry.spec)),  // of our own plan
        is_part(entry.chunk_size != total),
        is_first(entry.chunk_offset == 0),
        is_last(entry.chunk_offset + entry.chunk_size == total) {}
  ByteCount total;
  bool is_part;
  bool is_first;
  bool is_last;
};

class HostPacker final : public LoadPacker {
 public:
  HostPacker(const Source& source, Digests digests, rpc::DigestKind kind)
      : source_(source), digests_(digests), kind_(kind) {}

  std::size_t depth() const override { return 1; }

  Status Start(const stream::PackedBucket& packed, device::Memory slot) override {
    packed_ = &packed;
    REFIT_RETURN_IF_ERROR(device::CheckHostMemory(slot, "the host's packer"));
    slot_ = slot.bytes.first(packed.bucket.used);
    const bool hashes = digests_ == Digests::kOn && kind_ == rpc::DigestKind::kXxh3;
    const std::vector<stream::Entry>& entries = packed.bucket.entries;
    if (hashes && !entries.empty() && Chunk(entries.front()).is_part) {
      if (Chunk(entries.front()).is_first) {
        running_->Reset();
      }
      return device::RunCopiesOfChunk(packed.copies, source_.tensors(), slot_, entries.size(), *hasher_, *running_,
                                      chunks_);
    }
    return device::RunCopies(packed.copies, source_.tensors(), slot_, entries.size(), hashes ? hasher_.get() : nullptr,
                             chunks_);
  }

  Result<Digest> Finish(Instant /*deadline*/) override {
    if (digests_ == Digests::kOff) {
      return Digest{};
    }
    const std::vector<stream::Entry>& entries = packed_->bucket.entries;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Chunk chunk(entries[i]);
      if (kind_ == rpc::DigestKind::kGpuHash) {
        const std::uint64_t sum = device::GpuHashSum(slot_.subspan(entries[i].offset, entries[i].chunk_size),
                                                     entries[i].chunk_offset, chunk.total);
        chunks_[i] = GpuDigest(sum, chunk.total);
        sum_ = chunk.is_first ? sum : sum_ + sum;
      }
      if (chunk.is_last) {
        const Digest whole = kind_ == rpc::DigestKind::kGpuHash ? GpuDigest(sum_, chunk.total)
                             : chunk.is_part                    ? running_->Finish()
                                                                : chunks_[i];
        tensor_digests_.push_back(whole);
      }
    }
    return stream::BucketDigest(packed_->bucket, chunks_, *hasher_);
  }

 private:
  const Source& source_;
  const Digests digests_;
  const rpc::DigestKind kind_;
  const std::unique_ptr<DigestHasher> hasher_ = device::MakeDigestHasher();
  const std::unique_ptr<DigestHasher> running_ = device::MakeDigestHasher();  // of the tensor that spans buckets
  std::uint64_t sum_ = 0;                                                     // likewise
  const stream::PackedBucket* packed_ = nullptr;
  MutableBytes slot_;
  std::vector<Digest> chunks_;  // of the bucket's entries
};

class GpuPacker final : public LoadPacker {
 public:
  GpuPacker(const Source& source, Digests digests, device::GpuQueue& queue, const Source::EntrySums& known)
      : source_(source), digests_(digests), queue_(queue), known_(known) {}
  // A send that ends early leaves work in the queue, which writes into started_.
  ~GpuPacker() override {
    if (!started_.empty()) {
      static_cast<void>(queue_.Wait(started_.back().ticket, kNever));
    }
  }

  std::size_t depth() const override { return 2; }

  Status Start(const stream::PackedBucket& packed, device::Memory slot) override {
    Started started;
    started.packed = &packed;
    std::vector<device::GpuCopy> copies;
    copies.reserve(packed.copies.size());
    for (const stream::Copy& copy : packed.copies) {
      const device::Memory& tensor = source_.gpu_tensors()[copy.source];
      if (copy.source_offset + copy.size > tensor.size() || copy.target_offset + copy.size > slot.size()) {
        return Internal(StrCat("a copy of ", copy.size, " bytes leaves tensor ", copy.source, " or its slot"));
      }
      copies.push_back({tensor.bytes.data() + copy.source_offset, slot.bytes.data() + copy.target_offset, copy.size});
    }
    REFIT_RETURN_IF_ERROR(queue_.Copy(copies));
    const std::vector<stream::Entry>& entries = packed.bucket.entries;
    if (!known_.empty()) {
      started.sums = known_[packed.bucket.seq.value()];
    } else if (digests_ == Digests::kOn) {
      std::vector<device::GpuHashPart> parts;
      parts.reserve(entries.size());
      for (const stream::Entry& entry : entries) {
        parts.push_back({slot.bytes.data() + entry.offset, entry.chunk_size, entry.chunk_offset, Chunk(entry).total});
      }
      started.sums.resize(parts.size());
      REFIT_RETURN_IF_ERROR(queue_.Hash(parts, started.sums));
    }
    REFIT_ASSIGN_OR_RETURN(started.ticket, queue_.Mark());
    started_.push_back(std::move(started));  // its sums stay where the queue writes them
    return OkStatus();
  }

  Result<Digest> Finish(Instant deadline) override {
    REFIT_CHECK(!started_.empty(), "a bucket was started");
    REFIT_RETURN_IF_ERROR(queue_.Wait(started_.front().ticket, deadline));
    const Started started = std::move(started_.front());
    started_.pop_front();
    if (digests_ == Digests::kOff) {
      return Digest{};
    }
    const std::vector<stream::Entry>& entries = started.packed->bucket.entries;
    std::vector<Digest> chunks;
    chunks.reserve(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Chunk chunk(entries[i]);
      chunks.push_back(GpuDigest(started.sums[i], chunk.total));
      sum_ = chunk.is_first ? started.sums[i] : sum_ + started.sums[i];
      if (chunk.is_last) {
        tensor_digests_.push_back(GpuDigest(sum_, chunk.total));
      }
    }
    return stream::BucketDigest(started.packed->bucket, chunks, *hasher_);
  }

 private:
  struct Started {
    const stream::PackedBucket* packed = nullptr;
    std::vector<std::uint64_t> sums;  // written by the queue until the ticket is reached
    device::GpuTicket ticket{};
  };

  const Source& source_;
  const Digests digests_;
  device::GpuQueue& queue_;
  const Source::EntrySums& known_;  // of every bucket, or empty
  const std::unique_ptr<DigestHasher> hasher_ = device::MakeDigestHasher();
  std::deque<Started> started_;
  std::uint64_t sum_ = 0;  // of the tensor that spans buckets
};

}  // namespace

std::unique_ptr<LoadPacker> LoadPacker::Make(const Source& source, Digests digests, rpc::DigestKind kind,
                                             device::GpuQueue* queue, const Source::EntrySums* sums) {
  if (!source.gpu().has_value()) {
    return std::make_unique<HostPacker>(source, digests, kind);
  }
  REFIT_CHECK(kind == rpc::DigestKind::kGpuHash && queue != nullptr && sums != nullptr,
              "what a GPU holds is hashed by it");
  return std::make_unique<GpuPacker>(source, digests, *queue, *sums);
}

}  // namespace refit::runtime
