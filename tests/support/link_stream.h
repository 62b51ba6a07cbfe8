// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A stream of pieces over a link, small: two buffers for pieces at the sender, memory of two loads at the receiver,
// which fetches every piece to where it belongs (stream/load_assembler.h), announcements and completion notes through
// queues (contract §6). Both ends advance only when Step() is called, so that a test can try any interleaving; copies
// into a buffer and reads out of it stay unfinished until somebody waits for them, as on a device.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/check.h"
#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/device/hash.h"
#include "refit/exec/clock.h"
#include "refit/stream/bucket_packer.h"
#include "refit/stream/load_assembler.h"
#include "refit/transport/transport.h"

namespace refit::test {

inline constexpr std::byte kPoison{0xA5};

struct Announcement {
  stream::Bucket bucket;
  transport::Descriptor descriptor;
  Digest digest;  // L1
};

// The control channel of one link, in order.
struct Channel {
  std::deque<Announcement> announcements;  // sender -> receiver
  std::deque<LoadSeq> notes;               // receiver -> sender: this bucket was read
};

// Packs into two exported buffers, which it registers once and keeps over many streams (RC-BKT-06).
class LinkSender {
 public:
  LinkSender(transport::Transport& transport, ByteCount capacity) : transport_(transport) {
    for (Buffer& buffer : buffers_) {
      buffer.memory.assign(capacity, kPoison);
      const auto descriptor = transport_.Export(MutableBytes(buffer.memory));
      REFIT_CHECK(descriptor.ok(), "a buffer could not be exported");
      buffer.descriptor = *descriptor;
    }
  }
  ~LinkSender() {
    for (const Buffer& buffer : buffers_) {
      transport_.Unexport(buffer.descriptor);
    }
  }
  LinkSender(const LinkSender&) = delete;
  LinkSender& operator=(const LinkSender&) = delete;

  void Begin(std::vector<stream::PackedBucket> buckets, std::vector<Bytes> sources) {
    buckets_ = std::move(buckets);
    sources_ = std::move(sources);
    next_ = 0;
    filling_ = false;
    unread_.reset();
  }

  // Does at most one thing: takes a note, or starts the copies of the next bucket, or publishes it.
  void Step(Channel& channel) {
    if (!channel.notes.empty()) {
      if (unread_ == channel.notes.front()) {
        unread_.reset();
      }
      channel.notes.pop_front();
    } else if (next_ < buckets_.size() && !filling_) {
      filling_ = true;  // the copy engine may write from now on and is in no hurry to finish: see Publish
      buffers_[next_ % buffers_.size()].memory.assign(buffers_[0].memory.size(), kPoison);
    } else if (next_ < buckets_.size() && REFIT_MUTANT("RC-BKT-06/skip-the-note", !unread_.has_value(), true)) {
      Publish(channel);
    }
  }

  bool done() const { return next_ == buckets_.size() && !unread_.has_value(); }

 private:
  struct Buffer {
    std::vector<std::byte> memory;
    transport::Descriptor descriptor;
  };

  void Publish(Channel& channel) {
    const stream::PackedBucket& packed = buckets_[next_];
    Buffer& buffer = buffers_[next_ % buffers_.size()];
    std::vector<std::byte> elsewhere(buffer.memory.size());
    // RC-BKT-07: the copies are complete before anybody hears of them.
    const Digest digest = Flush(packed, REFIT_MUTANT("RC-BKT-07/skip-the-flush", buffer.memory, elsewhere));
    channel.announcements.push_back({packed.bucket, buffer.descriptor, digest});
    unread_ = packed.bucket.seq;
    filling_ = false;
    ++next_;
  }

  Digest Flush(const stream::PackedBucket& packed, MutableBytes target) {
    std::vector<Digest> digests;
    const Status copied =
        device::RunCopies(packed.copies, sources_, target, packed.bucket.entries.size(), hasher_.get(), digests);
    REFIT_CHECK(copied.ok(), copied.message().c_str());
    return stream::BucketDigest(packed.bucket, digests, *hasher_);
  }

  transport::Transport& transport_;
  std::array<Buffer, 2> buffers_;
  std::unique_ptr<DigestHasher> hasher_ = device::MakeDigestHasher();
  std::vector<stream::PackedBucket> buckets_;
  std::vector<Bytes> sources_;
  std::size_t next_ = 0;  // bucket being filled or to be filled
  bool filling_ = false;
  std::optional<LoadSeq> unread_;  // the one published bucket that was not read yet
};

// Memory of loads, counted: what is taken comes back exactly once, however its reads ended (RC-BKT-10). Two of
// load_bytes, reused over all streams (RC-BKT-06); a larger load has memory of its own, for as long as it is held
// (RC-RX-04).
class LoadPool {
 public:
  explicit LoadPool(ByteCount load_bytes) : load_bytes_(load_bytes) {
    for (std::vector<std::byte>& memory : free_) {
      memory.assign(load_bytes, kPoison);
    }
  }
  std::vector<std::byte> Take(ByteCount capacity) {
    ++taken_;
    if (capacity > load_bytes_) {
      return std::vector<std::byte>(capacity, kPoison);
    }
    REFIT_CHECK(!free_.empty(), "no memory of a load is free: one leaked");
    std::vector<std::byte> memory = std::move(free_.back());
    free_.pop_back();
    return memory;
  }
  void GiveBack(std::vector<std::byte> memory) {
    REFIT_CHECK(taken_ > 0, "memory of a load came back twice");
    --taken_;
    std::fill(memory.begin(), memory.end(), kPoison);  // RC-RX-03: whoever kept a view sees it at once
    if (memory.size() == load_bytes_) {
      free_.push_back(std::move(memory));
    }
  }
  ByteCount load_bytes() const { return load_bytes_; }
  std::size_t taken() const { return taken_; }

 private:
  ByteCount load_bytes_;
  std::vector<std::vector<std::byte>> free_{2};
  std::size_t taken_ = 0;
};

struct ReceivedTensor {
  weights::TensorSpec spec;
  Bytes bytes;  // valid until the next Step() of its receiver (RC-RX-01)
};

class LinkReceiver {
 public:
  // link: nothing for a receiver that was never bound. peer: for messages.
  LinkReceiver(std::string peer, transport::Link* link, LoadPool& pool, ByteCount piece_capacity)
      : peer_(std::move(peer)),
        link_(link),
        pool_(pool),
        piece_capacity_(piece_capacity),
        assembler_(piece_capacity, pool.load_bytes()) {}
  ~LinkReceiver() { End(); }
  LinkReceiver(const LinkReceiver&) = delete;
  LinkReceiver& operator=(const LinkReceiver&) = delete;

  // Does at most one thing: starts the reads of a piece, polls one of them, or hands over the tensors of the loads that
  // became whole. Nothing: not yet, or finished(). An error ends the stream; all memory is back by then.
  Result<std::optional<std::vector<ReceivedTensor>>> Step(Channel& channel) {
    ReleaseHeld();  // the batch before
    if (link_ == nullptr && REFIT_MUTANT("RC-BKT-13/block", true, false)) {
      return FailedPrecondition(StrCat("the receiver of ", peer_, " was never bound"), "bind before the first receive");
    }
    if (finished_ || link_ == nullptr) {
      return std::optional<std::vector<ReceivedTensor>>();
    }
    Result<std::optional<std::vector<ReceivedTensor>>> result = reading_ ? Poll(channel) : Start(channel);
    if (!result.ok()) {
      End();
      return result.status().WithContext(StrCat("reading from ", peer_));
    }
    return result;
  }

  bool finished() const { return finished_; }

 private:
  using Received = std::optional<std::vector<ReceivedTensor>>;
  struct Reading {
    Announcement announcement;
    stream::AssemblyStep step;
    std::deque<transport::OpId> ops;  // those that were not seen to end
  };

  Result<Received> Start(Channel& channel) {
    if (channel.announcements.empty()) {
      return Received();
    }
    Announcement announcement = std::move(channel.announcements.front());
    channel.announcements.pop_front();
    REFIT_ASSIGN_OR_RETURN(stream::AssemblyStep step, assembler_.Accept(announcement.bucket));
    for (const stream::OpenedLoad& load : step.opened) {
      loads_[load.number] = pool_.Take(load.capacity);
    }
    reading_ = Reading{std::move(announcement), std::move(step), {}};
    for (const stream::Placement& placement : reading_->step.placements) {
      if (placement.size > 0) {
        REFIT_RETURN_IF_ERROR(Fetch(placement));
      }
    }
    if (REFIT_MUTANT("RC-BKT-08/note-before-completion", false, true)) {
      channel.notes.push_back(reading_->announcement.bucket.seq);
    }
    return Received();
  }

  // Straight to where the bytes belong: no landing buffer, no merging.
  Status Fetch(const stream::Placement& placement) {
    const MutableBytes room = MutableBytes(loads_.at(placement.load)).subspan(placement.target_offset);
    const ByteCount size = REFIT_MUTANT("RC-BKT-09/read-the-capacity", placement.size,
                                        std::min(room.size(), piece_capacity_ - placement.source_offset));
    REFIT_ASSIGN_OR_RETURN(const transport::OpId op, link_->Fetch(reading_->announcement.descriptor,
                                                                  {placement.source_offset, size}, room.first(size)));
    reading_->ops.push_back(op);
    return OkStatus();
  }

  Result<Received> Poll(Channel& channel) {
    if (!reading_->ops.empty()) {
      const transport::OpId op = reading_->ops.front();
      const transport::OpState state = link_->Poll(op);
      if (state == transport::OpState::kFailed) {
        return link_->error(op);
      }
      if (state == transport::OpState::kDone) {
        reading_->ops.pop_front();
      }
    }
    if (!reading_->ops.empty()) {
      return Received();
    }
    const Reading read = std::move(*reading_);
    reading_.reset();
    REFIT_RETURN_IF_ERROR(CheckDigest(read));
    if (REFIT_MUTANT("RC-BKT-08/note-before-completion", true, false)) {
      channel.notes.push_back(read.announcement.bucket.seq);
    }
    finished_ = read.step.is_last;
    return HandOver(read.step.closed);
  }

  Status CheckDigest(const Reading& read) {
    const stream::Bucket& bucket = read.announcement.bucket;
    std::vector<Digest> digests;
    for (const stream::Placement& placement : read.step.placements) {
      hasher_->Reset();
      hasher_->Update(Bytes(loads_.at(placement.load)).subspan(placement.target_offset, placement.size));
      digests.push_back(hasher_->Finish());
    }
    if (stream::BucketDigest(bucket, digests, *hasher_) != read.announcement.digest) {
      return DataLoss(StrCat("bucket ", bucket.seq, " does not have the digest that was announced"));
    }
    return OkStatus();
  }

  Received HandOver(const std::vector<stream::ClosedLoad>& closed) {
    std::vector<ReceivedTensor> tensors;
    for (const stream::ClosedLoad& load : closed) {
      const Bytes memory = loads_.at(load.number);
      for (const stream::BatchTensor& tensor : load.tensors) {
        tensors.push_back({tensor.spec, memory.subspan(tensor.location, SizeOf(tensor.spec).value())});
      }
      held_.push_back(load.number);
    }
    return tensors;
  }

  void ReleaseHeld() {
    for (const std::uint64_t number : held_) {
      pool_.GiveBack(std::move(loads_.at(number)));
      loads_.erase(number);
    }
    held_.clear();
  }

  // After an error nothing may write into the memory any more before it is used again (RX-ASM-T2).
  void End() {
    finished_ = true;
    ReleaseHeld();
    if (reading_) {
      REFIT_CHECK(link_->Fence(exec::Now() + std::chrono::seconds(1)) == transport::FenceOutcome::kFenced,
                  "this double has no graveyard");
      reading_.reset();
    }
    if (REFIT_MUTANT("RC-BKT-10/leak-on-error", true, false)) {
      for (auto& [number, memory] : loads_) {
        pool_.GiveBack(std::move(memory));
      }
    }
    loads_.clear();
  }

  const std::string peer_;
  transport::Link* const link_;
  LoadPool& pool_;
  const ByteCount piece_capacity_;
  stream::LoadAssembler assembler_;
  std::unique_ptr<DigestHasher> hasher_ = device::MakeDigestHasher();
  std::optional<Reading> reading_;
  std::map<std::uint64_t, std::vector<std::byte>> loads_;  // by number: being filled, or handed over
  std::vector<std::uint64_t> held_;                        // loads of the batch that was handed over
  bool finished_ = false;
};

}  // namespace refit::test
