// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/send_stream.h"

#include <algorithm>
#include <utility>

#include "refit/base/str.h"
#include "refit/weights/reshard_plan.h"
#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/policy_process.h"
#include "sim/world.h"

namespace refit::sim {
namespace {

constexpr std::size_t kSlots = 2;

}  // namespace

SendStream::SendStream(PolicyProcess& policy, SlotIndex slot) : policy_(policy), slot_(slot) {}

void SendStream::Open(const OpenedStream& open, Content content, Instant deadline,
                      std::function<void(SendResult)> done) {
  World& world = policy_.sim();
  const stream::PackUnit unit = world.plan().link ? stream::PackUnit::kPiece : stream::PackUnit::kLoad;
  buckets_ = *stream::Pack(weights::MakeFullPlan(*world.weights().manifest()), unit, world.plan().load_bytes);
  const std::size_t slots = std::min(kSlots, buckets_.size());
  std::vector<stream::Readers> readers;
  for (const std::shared_ptr<LoadMemory>& memory : slots_) {
    readers.push_back(memory->readers > 0 ? stream::Readers::kThere : stream::Readers::kGone);
  }
  const auto review = ledger_.Open(open.stamp.attempt, open.stamp.incarnation, unit, readers, slots);
  if (!review.has_value()) {
    return done({SendEnd::kReceiverLeft, review.status(), {}, {}});
  }
  if (review->new_life) {
    left_.clear();
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (review->fates[i] == stream::MemoryFate::kReplace) {
      slots_[i]->unlinked = true;
      left_.push_back(std::exchange(slots_[i], std::make_shared<LoadMemory>()));
    }
  }
  slots_.resize(slots);
  for (std::shared_ptr<LoadMemory>& memory : slots_) {
    memory = memory == nullptr ? std::make_shared<LoadMemory>() : memory;
    memory->bytes.resize(std::max<std::size_t>(memory->bytes.size(), stream::LargestBucket(buckets_)));
  }
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    places.push_back(i % slots);
  }
  open_ = open;
  content_ = content;
  digests_.assign(buckets_.size(), Digest{});
  tensors_.clear();
  for (std::size_t i = 0; i < world.weights().tensor_count(); ++i) {
    tensors_.emplace_back(world.weights().manifest()->size(i));
  }
  flow_.emplace(ledger_, std::move(places), 1);
  result_ = {};
  done_ = std::move(done);
  filling_ = false;
  const std::uint64_t turn = ++turn_;
  world.At(deadline, [this, turn] {
    policy_.Run([this, turn] {
      if (turn == turn_ && running()) {
        Stop(SendEnd::kReceiverLeft, DeadlineExceeded("a slot was not given back in time"));
      }
    });
  });
  policy_.SendOpened(slot_, open_, slots);
  Go();
}

void SendStream::Go() {
  World& world = policy_.sim();
  while (running() && !filling_) {
    if (world.faults().During(FaultKind::kBlockSource, policy_.rank().value()).has_value()) {
      world.After(Millis(200),
                  [this, turn = turn_] { policy_.Run([this, turn] { return turn == turn_ ? Go() : void(); }); });
      return;
    }
    const stream::SendStep step = flow_->Next();
    switch (step.kind) {
      case stream::SendStep::Kind::kFill: return Fill(step);
      case stream::SendStep::Kind::kSkip: break;
      case stream::SendStep::Kind::kAnnounce: Announce(step); break;
      case stream::SendStep::Kind::kAwaitRelease: return;
      case stream::SendStep::Kind::kEnd: return End();
    }
  }
}

// As the packer does: from the source straight into the slot, each tensor's bytes seen once for its digest.
void SendStream::Fill(const stream::SendStep& step) {
  World& world = policy_.sim();
  world.checks().OnFill(slot_, *slots_[step.slot], open_.stamp.attempt);
  filling_ = true;
  world.After(world.Between(Micros(20), Micros(400)), [this, step, turn = turn_] {
    policy_.Run([this, step, turn] {
      if (turn != turn_ || !running()) {
        return;
      }
      filling_ = false;
      World& here = policy_.sim();
      const stream::PackedBucket& packed = buckets_[step.bucket];
      std::vector<std::byte>& memory = slots_[step.slot]->bytes;
      std::vector<Digest> chunks(packed.bucket.entries.size());
      for (const stream::Copy& copy : packed.copies) {
        const Bytes from = here.weights().tensor(content_, copy.source).subspan(copy.source_offset, copy.size);
        std::ranges::copy(from, memory.begin() + static_cast<std::ptrdiff_t>(copy.target_offset));
        std::ranges::copy(from, tensors_[copy.source].begin() + static_cast<std::ptrdiff_t>(copy.source_offset));
      }
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const stream::Entry& entry = packed.bucket.entries[i];
        chunks[i] = DigestOf(Bytes(memory).subspan(entry.offset, entry.chunk_size));
      }
      SimHasher hasher;
      digests_[step.bucket] = stream::BucketDigest(packed.bucket, chunks, hasher);
      Go();
    });
  });
}

void SendStream::Announce(const stream::SendStep& step) {
  const stream::Bucket& bucket = buckets_[step.bucket].bucket;
  for (const stream::Entry& entry : bucket.entries) {
    result_.totals.tensors += entry.chunk_offset == 0 ? 1U : 0U;
    result_.totals.bytes += entry.chunk_size;
  }
  ++result_.totals.loads;
  policy_.SendAnnouncement(
      slot_, open_,
      {open_.stamp.attempt, open_.stamp.incarnation, step.slot, bucket, digests_[step.bucket], slots_[step.slot]});
}

void SendStream::Release(AttemptId attempt, LoadSeq seq) {
  if (!ledger_.Release(attempt, seq)) {
    return;
  }
  policy_.sim().checks().OnTaken(slot_, "a release", attempt, open_.stamp.attempt);
  if (running()) {
    Go();
  }
}

void SendStream::Stop(SendEnd why, const Status& status) {
  if (!running() || result_.end != SendEnd::kComplete) {
    return;
  }
  result_ = {why, status, {}, {}};
  flow_->Stop();
  filling_ = false;
  ++turn_;  // what is being filled is dropped
  Go();
}

// S7: when nothing is under way.
void SendStream::CheckAtRest() const {
  Checks& checks = policy_.sim().checks();
  if (ledger_.any_out()) {
    checks.OnRest(slot_, "a load slot", nullptr);
  }
  for (const std::shared_ptr<LoadMemory>& memory : slots_) {
    checks.OnRest(slot_, "a load slot", memory.get());
  }
}

void SendStream::End() {
  if (result_.end == SendEnd::kComplete) {
    std::vector<Digest> digests;
    for (const std::vector<std::byte>& tensor : tensors_) {
      digests.push_back(DigestOf(tensor));
    }
    SimHasher hasher;
    result_.root = weights::RootDigest(*policy_.sim().weights().manifest(), digests, hasher);
  }
  const auto done = std::exchange(done_, nullptr);
  done(result_);
}

}  // namespace refit::sim
