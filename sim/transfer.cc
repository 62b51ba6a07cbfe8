// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/transfer.h"

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/stream/update_group.h"
#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/faults.h"
#include "sim/policy_process.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {
namespace {

constexpr std::size_t kPreparedCalls = 2;
constexpr Duration kCountPoll = std::chrono::microseconds(300);

}  // namespace

Transfer::Transfer(AgentProcess& agent, peer::StartTransfer start, Engine& engine,
                   std::map<PolicyRank, Landing>& landings, Post post)
    : agent_(agent),
      start_(std::move(start)),
      engine_(engine),
      landings_(landings),
      post_(std::move(post)),
      aligner_(start_.streams.size()) {
  for (const sync::StreamSource& source : start_.streams) {
    streams_.emplace_back(source, start_.stamp, agent_.sim().plan().load_bytes);
  }
}

void Transfer::Begin() {
  World& world = agent_.sim();
  for (Stream& stream : streams_) {
    stream.serial = world.Draw();
    const OpenedStream open{start_.stamp, agent_.slot(), stream.source.incarnation, stream.serial};
    world.ToPolicy(agent_, stream.source.policy, [open](PolicyProcess& policy) { policy.OpenStream(open); });
    if (!world.plan().link && world.faults().TakeData(FaultKind::kCutData, stream.source.policy, agent_.slot())) {
      world.After(kLinkTimeout, [this] { agent_.Run([this] { Fail(Unavailable("the load stream broke")); }); });
    }
  }
  world.After(start_.budget, [this] {
    agent_.Run([this] { Fail(DeadlineExceeded("the weights did not come within the transfer's budget")); });
  });
}

Transfer::Stream* Transfer::Find(PolicyRank rank) {
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [rank](const Stream& stream) { return stream.source.policy == rank; });
  return found == streams_.end() || over_ || stopped_ ? nullptr : &*found;
}

void Transfer::Fail(const Status& status) {
  if (!std::exchange(over_, true)) {
    agent_.sim().Note("engine ", agent_.slot(), " transfer failed: ", status.message());
    post_(peer::TransferFailed{attempt(), status});
  }
}

void Transfer::OnOpened(PolicyRank rank, AttemptId attempt, std::size_t slots) {
  if (Stream* const stream = Find(rank); stream != nullptr) {
    static_cast<void>(stream->gate.Opened(attempt, slots));
  }
}

void Transfer::OnFailed(PolicyRank rank, AttemptId attempt, const Status& status) {
  Stream* const stream = Find(rank);
  if (stream != nullptr && stream->gate.Failed(attempt) == stream::Arrival::kTake && !stream->gate.saw_last()) {
    Fail(status.WithContext(StrCat("policy rank ", rank)));
  }
}

void Transfer::OnAnnounced(PolicyRank rank, const Announcement& announcement) {
  Stream* const stream = Find(rank);
  if (stream == nullptr) {
    return;
  }
  const auto arrival = stream->gate.Announced(announcement.attempt, announcement.incarnation, announcement.slot,
                                              announcement.bucket.seq, announcement.bucket.is_last);
  Status status = arrival.status();
  if (arrival.has_value()) {
    if (*arrival == stream::Arrival::kDrop) {
      return;
    }
    agent_.sim().checks().OnTaken(agent_.slot(), "an announcement", announcement.attempt, attempt());
    status = agent_.sim().plan().link ? TakePiece(*stream, announcement) : TakeLoad(*stream, announcement);
  }
  if (!status.ok()) {
    return Fail(status);
  }
  Go();
}

// ---- loads that are mapped in place

Status Transfer::TakeLoad(Stream& stream, const Announcement& announcement) {
  const stream::Bucket& bucket = announcement.bucket;
  REFIT_RETURN_IF_ERROR(stream::CheckBucket(bucket, announcement.memory->bytes.size()));
  if (!bucket.entries.empty()) {
    Load load{bucket.seq, announcement.memory, {}};
    for (const stream::Entry& entry : bucket.entries) {
      load.tensors.push_back({entry.spec, static_cast<std::size_t>(entry.offset)});
    }
    stream.loads.push_back(std::move(load));
  }
  stream.ended = stream.gate.saw_last();
  return OkStatus();
}

// ---- from loads to calls

void Transfer::Go() {
  while (!over_ && !stopped_ && !aligned_ && prepared_.size() < kPreparedCalls) {
    if (!AcceptPulls()) {
      return;
    }
    const auto group = aligner_.Next();
    if (!group.has_value()) {
      return Fail(group.status());
    }
    if (!group->has_value()) {
      aligned_ = true;
      break;
    }
    Prepare(**group);
  }
  EndIfDone();
}

bool Transfer::AcceptPulls() {
  for (const std::size_t wanted : aligner_.Wanted()) {
    Stream& stream = streams_[wanted];
    Status status;
    if (!stream.loads.empty()) {
      stream.current = std::move(stream.loads.front());
      stream.loads.pop_front();
      status = aligner_.Accept(wanted, stream.current->tensors);
    } else if (stream.ended) {
      status = aligner_.Accept(wanted, std::nullopt);
    } else {
      return false;
    }
    if (!status.ok()) {
      Fail(status);
      return false;
    }
  }
  return true;
}

void Transfer::Prepare(const stream::AlignedGroup& group) {
  World& world = agent_.sim();
  const auto calls = stream::SplitIntoCalls(group, world.profile().dtype_split);
  if (!calls.has_value()) {
    return Fail(calls.status());
  }
  for (const stream::AlignedGroup& one : *calls) {
    Call call;
    call.ranks.resize(world.plan().tp_size);
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      RankPayload payload{streams_[i].current->memory, {}};
      for (const stream::BatchTensor& tensor : one[i]) {
        const std::size_t index = *world.weights().manifest()->Find(tensor.spec.name);
        payload.tensors.push_back({index, tensor.location});
        call.totals.bytes += world.weights().manifest()->size(index) * streams_[i].source.tp_ranks.size();
      }
      call.totals.tensors += one[i].size() * streams_[i].source.tp_ranks.size();
      for (const std::uint32_t rank : streams_[i].source.tp_ranks) {
        call.ranks[rank] = payload;
      }
      call.memories.push_back(payload.memory);
    }
    call.totals.loads = 1;
    prepared_.push_back(std::move(call));
  }
  for (const std::size_t spent : aligner_.Wanted()) {
    prepared_.back().spent.push_back({spent, streams_[spent].current->seq});
  }
  for (std::size_t i = 0; i < calls->size(); ++i) {
    post_(peer::LoadReady{attempt()});
  }
}

void Transfer::PostUpdate(const peer::PostUpdate& update) {
  if (stopped_ || prepared_.empty()) {
    post_(peer::EngineAnswered{update.call, {sync::AnswerKind::kRefused, "not sent: the transfer was stopped", {}}});
    return;
  }
  const Call call = std::move(prepared_.front());
  prepared_.pop_front();
  ++in_flight_;
  for (const RankPayload& rank : call.ranks) {
    ++rank.memory->readers;  // before the POST, never after (RC-PAY-09)
  }
  agent_.sim().checks().OnHandOver(engine_, attempt(), call.ranks);
  const Instant until = agent_.sim().now() + update.deadline;
  engine_.Update(call.ranks, update.label, update.deadline,
                 [this, call, id = update.call, until](const sync::Answer& answer) {
                   agent_.Run([this, call, id, until, answer] { AwaitRanks(call, id, answer, until); });
                 });
}

// The count, not the answer, says that a rank is done (RC-PAY-05).
void Transfer::AwaitRanks(const Call& call, std::uint64_t id, const sync::Answer& answer, Instant until) {
  World& world = agent_.sim();
  const bool waits =
      answer.kind == sync::AnswerKind::kOk && REFIT_MUTANT("RC-PAY-05/free-on-reply", true, false) &&
      std::any_of(call.memories.begin(), call.memories.end(), [](const auto& memory) { return memory->readers > 0; });
  if (!waits) {
    return Answered(call, id, answer);
  }
  if (world.now() >= until || !engine_.alive()) {
    return Answered(call, id, {sync::AnswerKind::kNone, "a rank still holds its load", {}});
  }
  world.After(kCountPoll, [this, call, id, answer, until] {
    agent_.Run([this, call, id, answer, until] { AwaitRanks(call, id, answer, until); });
  });
}

void Transfer::Answered(const Call& call, std::uint64_t id, const sync::Answer& answer) {
  --in_flight_;
  if (answer.kind == sync::AnswerKind::kOk) {
    for (const Spent& spent : call.spent) {
      GiveBack(spent);
    }
    totals_.tensors += call.totals.tensors;
    totals_.loads += call.totals.loads;
    totals_.bytes += call.totals.bytes;
  }
  post_(peer::EngineAnswered{id, answer});
  if (stopped_) {
    return FinishStop();
  }
  Go();
}

void Transfer::GiveBack(const Spent& spent) {
  Stream& stream = streams_[spent.stream];
  if (!agent_.sim().plan().link) {
    agent_.Release(stream.source.policy, attempt(), spent.seq);
    return;
  }
  stream.turns.GiveBack(spent.seq.value());
  if (!over_ && !stopped_) {
    StartReads(stream);
  }
}

void Transfer::EndIfDone() {
  if (aligned_ && prepared_.empty() && in_flight_ == 0 && !stopped_ && !std::exchange(over_, true)) {
    post_(peer::TransferEnded{attempt(), totals_});
  }
}

// ---- the fence (RX-XFER-12)

void Transfer::Stop(std::function<void()> fenced) {
  stopped_ = true;
  prepared_.clear();
  fenced_ = std::move(fenced);
  Leave();
  FinishStop();
}

void Transfer::Leave() {
  for (const Stream& stream : streams_) {
    agent_.sim().ToPolicy(
        agent_, stream.source.policy,
        [slot = agent_.slot(), serial = stream.serial](PolicyProcess& policy) { policy.ReceiverLeft(slot, serial); });
  }
}

void Transfer::FinishStop() {
  if (in_flight_ > 0 || fenced_ == nullptr) {
    return;
  }
  World& world = agent_.sim();
  bool late = false;
  for (const Stream& stream : streams_) {
    bool reading = false;
    bool unknown = false;
    for (const Piece& piece : stream.pieces) {
      if (piece.read != nullptr && !piece.read->landed && !piece.read->cancelled) {
        reading = true;
        unknown = unknown || piece.read->unfenced;
        piece.read->cancelled = !piece.read->unfenced;
      }
    }
    if (reading) {
      Landing& landing = landings_[stream.source.policy];
      const auto fate = landing.ledger.EndTransfer(unknown ? stream::LateReads::kPossible : stream::LateReads::kNone);
      if (fate == stream::MemoryFate::kReplace) {
        landing.places = {};
      }
    }
    late = late || unknown;
  }
  const auto fenced = std::exchange(fenced_, nullptr);
  world.After(late ? kFenceDeadline : Micros(50), [this, fenced] { agent_.Run(fenced); });
}

bool Transfer::exhausted() const {
  return std::any_of(landings_.begin(), landings_.end(),
                     [](const auto& landing) { return landing.second.ledger.exhausted(); });
}

}  // namespace refit::sim
