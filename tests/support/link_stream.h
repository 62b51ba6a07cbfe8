// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A stream of pieces over a link, small: two buffers on each side, announcements and completion notes through queues
// (contract §6). It proves the rules of the protocol until the first backend with a link brings the product's loops
// (settled D15). Both ends advance only when Step() is called, so that a test can try any interleaving; copies into a
// buffer and reads out of it stay unfinished until somebody waits for them, as on a device.

#pragma once

#include <array>
#include <cstddef>
#include <deque>
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
#include "refit/stream/bucket_merger.h"
#include "refit/stream/bucket_packer.h"
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
      const auto descriptor = transport_.Export(buffer.memory);
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

// Landing buffers, counted: a buffer that is taken comes back exactly once, however its read ended (RC-BKT-10).
class LandingPool {
 public:
  explicit LandingPool(ByteCount capacity) : capacity_(capacity) {
    for (std::vector<std::byte>& buffer : buffers_) {
      buffer.assign(capacity, kPoison);
    }
  }
  std::size_t Take() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (!taken_[i]) {
        taken_[i] = true;
        return i;
      }
    }
    REFIT_CHECK(false, "no landing buffer is free: one leaked");
    return 0;
  }
  void GiveBack(std::size_t index) {
    REFIT_CHECK(taken_[index], "a landing buffer came back twice");
    taken_[index] = false;
    buffers_[index].assign(capacity_, kPoison);  // RC-RX-03: whoever kept a view sees it at once
  }
  MutableBytes bytes(std::size_t index) { return buffers_[index]; }
  ByteCount capacity() const { return capacity_; }
  std::size_t taken() const { return static_cast<std::size_t>(taken_[0]) + static_cast<std::size_t>(taken_[1]); }

 private:
  ByteCount capacity_;
  std::array<std::vector<std::byte>, 2> buffers_;
  std::array<bool, 2> taken_{};
};

struct ReceivedTensor {
  weights::TensorSpec spec;
  Bytes bytes;  // valid until the next Step() of its receiver
};

class LinkReceiver {
 public:
  // link: nothing for a receiver that was never bound. peer: for messages.
  LinkReceiver(std::string peer, transport::Link* link, LandingPool& pool)
      : peer_(std::move(peer)), link_(link), pool_(pool), merger_(pool.capacity()) {}
  ~LinkReceiver() { End(); }
  LinkReceiver(const LinkReceiver&) = delete;
  LinkReceiver& operator=(const LinkReceiver&) = delete;

  // Does at most one thing: starts a read, polls it, or hands over the tensors of a read that has ended.
  // Nothing: not yet, or finished(). An error ends the stream; all landing memory is back by then.
  Result<std::optional<std::vector<ReceivedTensor>>> Step(Channel& channel) {
    Release();  // the batch before
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
    transport::OpId op = 0;
    std::size_t landing = 0;
  };

  Result<Received> Start(Channel& channel) {
    if (channel.announcements.empty()) {
      return Received();
    }
    Announcement announcement = std::move(channel.announcements.front());
    channel.announcements.pop_front();
    REFIT_RETURN_IF_ERROR(stream::CheckBucket(announcement.bucket, pool_.capacity()));
    const ByteCount size = REFIT_MUTANT("RC-BKT-09/read-the-capacity", announcement.bucket.used, pool_.capacity());
    const std::size_t landing = pool_.Take();
    const auto op = link_->Fetch(announcement.descriptor, {0, size}, pool_.bytes(landing).first(size));
    if (!op.ok()) {
      GiveBackAfterError(landing);
      return op.status();
    }
    if (REFIT_MUTANT("RC-BKT-08/note-before-completion", false, true)) {
      channel.notes.push_back(announcement.bucket.seq);
    }
    reading_ = Reading{std::move(announcement), *op, landing};
    return Received();
  }

  Result<Received> Poll(Channel& channel) {
    const transport::OpState state = link_->Poll(reading_->op);
    if (state == transport::OpState::kPending) {
      return Received();
    }
    const Reading read = std::move(*reading_);
    reading_.reset();
    if (state == transport::OpState::kFailed) {
      GiveBackAfterError(read.landing);
      return link_->error(read.op);
    }
    held_ = read.landing;
    REFIT_RETURN_IF_ERROR(CheckDigest(read));
    if (REFIT_MUTANT("RC-BKT-08/note-before-completion", true, false)) {
      channel.notes.push_back(read.announcement.bucket.seq);
    }
    return Merge(read);
  }

  Status CheckDigest(const Reading& read) {
    const stream::Bucket& bucket = read.announcement.bucket;
    std::vector<Digest> digests;
    for (const stream::Entry& entry : bucket.entries) {
      hasher_->Reset();
      hasher_->Update(pool_.bytes(read.landing).subspan(entry.offset, entry.chunk_size));
      digests.push_back(hasher_->Finish());
    }
    if (stream::BucketDigest(bucket, digests, *hasher_) != read.announcement.digest) {
      return DataLoss(StrCat("bucket ", bucket.seq, " does not have the digest that was announced"));
    }
    return OkStatus();
  }

  Result<Received> Merge(const Reading& read) {
    REFIT_ASSIGN_OR_RETURN(const stream::MergeStep step, merger_.Accept(read.announcement.bucket));
    if (step.assembly_size) {
      assembly_.assign(*step.assembly_size, kPoison);
    }
    const std::array<Bytes, 1> landing = {pool_.bytes(read.landing)};
    std::vector<Digest> digests;
    REFIT_RETURN_IF_ERROR(
        device::RunCopies(step.copies, landing, assembly_, read.announcement.bucket.entries.size(), nullptr, digests));
    std::vector<ReceivedTensor> tensors;
    for (const stream::MergedTensor& tensor : step.tensors) {
      if (tensor.reassembled) {
        assembled_ = std::move(assembly_);
        tensors.push_back({tensor.spec, assembled_});
      } else {
        tensors.push_back({tensor.spec, pool_.bytes(read.landing).subspan(tensor.offset, tensor.size)});
      }
    }
    finished_ = step.is_last;
    return Received(std::move(tensors));
  }

  // After an error nothing may write into the memory any more before it is used again (RX-ASM-T2).
  void GiveBackAfterError(std::size_t landing) {
    REFIT_CHECK(link_->Fence(exec::Now() + std::chrono::seconds(1)) == transport::FenceOutcome::kFenced,
                "this double has no graveyard");
    if (REFIT_MUTANT("RC-BKT-10/leak-on-error", true, false)) {
      pool_.GiveBack(landing);
    }
  }

  void Release() {
    if (held_) {
      pool_.GiveBack(*held_);
      held_.reset();
      std::vector<std::byte>().swap(assembled_);
    }
  }

  void End() {
    finished_ = true;
    Release();
    if (reading_) {
      GiveBackAfterError(reading_->landing);
      reading_.reset();
    }
  }

  const std::string peer_;
  transport::Link* const link_;
  LandingPool& pool_;
  stream::BucketMerger merger_;
  std::unique_ptr<DigestHasher> hasher_ = device::MakeDigestHasher();
  std::optional<Reading> reading_;
  std::optional<std::size_t> held_;   // landing buffer of the batch that was handed over
  std::vector<std::byte> assembly_;   // of the tensor being joined
  std::vector<std::byte> assembled_;  // of the batch that was handed over
  bool finished_ = false;
};

}  // namespace refit::test
