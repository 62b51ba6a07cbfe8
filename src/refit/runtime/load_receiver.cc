// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/load_receiver.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/observe/log.h"
#include "refit/stream/bucket.h"

namespace refit::runtime {
namespace {

constexpr std::size_t kPreparedCalls = 2;  // ahead of the engine: no more than a stream's load slots anyway

constexpr Duration kCallerExit = std::chrono::seconds(60);

}  // namespace

LoadReceiver::LoadReceiver(LoadReceiverOptions options, ReceiverMemory& memory,
                           std::function<void(peer::EngineAgentEvent)> post, std::atomic<ByteCount>& delivered)
    : options_(std::move(options)),
      deadline_(exec::Now() + options_.start.budget),
      memory_(memory),
      post_(std::move(post)),
      delivered_(delivered),
      streams_(options_.start.streams.size()),
      loop_([this] { Run(); }) {}

LoadReceiver::~LoadReceiver() {
  Stop();
  loop_.join();
  // The caller's last answer may have brought us here while it still counts itself out.
  static_cast<void>(
      shared_.Wait([](const Shared& shared) { return shared.in_flight == 0; }, exec::Now() + kCallerExit));
  streams_.clear();  // fences what links still read
  if (failed_) {
    memory_.DropLinks();
  }
}

void LoadReceiver::Stop() {
  shared_.With([this](Shared& shared) {
    shared.stopped = true;
    for (Stream& stream : streams_) {
      if (stream.channel != nullptr) {
        stream.channel->Cancel();
      }
      if (stream.puller != nullptr) {
        stream.puller->Stop();
      }
    }
  });
}

void LoadReceiver::Run() {
  const AttemptId attempt = options_.start.stamp.attempt;
  Status status = ReceiveAll();
  const Duration staged = exec::Now() - begun_;
  if (status.ok()) {
    status = WaitForCaller();
  }
  if (!status.ok()) {
    failed_ = true;
    post_(peer::TransferFailed{attempt, std::move(status)});
    return;
  }
  post_(peer::TransferEnded{attempt, shared_.With([staged](Shared& shared) {
                              shared.totals.staged = staged;
                              return shared.totals;
                            })});
}

Status LoadReceiver::ReceiveAll() {
  REFIT_RETURN_IF_ERROR(OpenStreams());
  stream::NameAligner aligner(streams_.size());
  while (true) {
    // Waiting for streams one after another costs nothing: each sender packs on its own, whether or not it is waited
    // for.
    for (const std::size_t wanted : aligner.Wanted()) {
      REFIT_ASSIGN_OR_RETURN(std::optional<stream::Batch> batch, Pull(streams_[wanted]));
      REFIT_RETURN_IF_ERROR(aligner.Accept(wanted, std::move(batch)));
    }
    REFIT_ASSIGN_OR_RETURN(const std::optional<stream::AlignedGroup> group, aligner.Next());
    if (!group.has_value()) {
      return OkStatus();
    }
    REFIT_RETURN_IF_ERROR(Prepare(*group, aligner.Wanted()));
  }
}

Status LoadReceiver::OpenStreams() {
  const peer::StartTransfer& start = options_.start;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    stream.source = start.streams[i];
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<TransferStream> channel,
                           TransferStream::Connect(stream.source.address,
                                                   {.stamp = start.stamp,
                                                    .slot = options_.slot,
                                                    .policy_incarnation = stream.source.incarnation,
                                                    .tp_ranks = stream.source.tp_ranks,
                                                    .offers = options_.offers,
                                                    .budget = deadline_ - exec::Now(),
                                                    .patience = options_.patience},
                                                   deadline_));
    const bool stopped = shared_.With([&](Shared& shared) {
      stream.channel = std::move(channel);
      return shared.stopped;
    });
    if (stopped) {
      return Aborted("the transfer was stopped");
    }
  }
  std::set<std::string> used;
  for (Stream& stream : streams_) {
    const auto opened = stream.channel->Open();
    if (!opened.has_value()) {
      return opened.status().WithContext(StrCat("policy rank ", stream.source.policy));
    }
    REFIT_RETURN_IF_ERROR(Open(stream, *opened, used));
  }
  memory_.in_place().Retain(used);
  return OkStatus();
}

// By the transport that the sender took of those offered.
Status LoadReceiver::Open(Stream& stream, const rpc::StreamOpened& opened, std::set<std::string>& used) {
  const std::string whom = StrCat("policy rank ", stream.source.policy);
  if (opened.offer >= options_.offers.size()) {
    return Aborted(StrCat(whom, " took offer ", opened.offer, " of ", options_.offers.size()));
  }
  const rpc::Offer& offer = options_.offers[opened.offer];
  if (offer.unit == stream::PackUnit::kLoad) {
    for (const std::string& descriptor : opened.slots) {
      REFIT_ASSIGN_OR_RETURN(SharedLoad* const slot,
                             memory_.in_place().Map(offer.transport, opened.transport_address, descriptor, deadline_));
      stream.slots.push_back(slot);
      used.insert(descriptor);
    }
    return OkStatus();
  }
  REFIT_ASSIGN_OR_RETURN(
      ReceiverMemory::LinkEnd* const end,
      memory_.Bind(stream.source.tp_ranks.front(), offer.transport, opened.transport_address, deadline_));
  REFIT_ASSIGN_OR_RETURN(
      std::unique_ptr<LoadPuller> puller,
      LoadPuller::Start({.whom = whom, .opened = opened, .load_bytes = options_.load_bytes, .deadline = deadline_},
                        *stream.channel, *end));
  const bool stopped = shared_.With([&](Shared& shared) {
    stream.puller = std::move(puller);
    return shared.stopped;
  });
  return stopped ? Aborted("the transfer was stopped") : OkStatus();
}

// The next load of a stream as a batch; nothing at its end.
Result<std::optional<stream::Batch>> LoadReceiver::Pull(Stream& stream) {
  if (stream.puller == nullptr) {
    return PullInPlace(stream);
  }
  REFIT_ASSIGN_OR_RETURN(std::optional<PulledLoad> pulled, stream.puller->Next());
  if (!pulled.has_value()) {
    const PullTimes times = stream.puller->times();
    const auto after = [this](Instant then) { return StrCat((then - begun_) / std::chrono::microseconds(1), " us"); };
    observe::LogInfo(StrCat("engine ", options_.slot, ", policy rank ", stream.source.policy, ": first piece after ",
                            after(times.first_announced), ", last one after ", after(times.last_announced),
                            ", landed after ", after(times.last_landed)));
    return std::optional<stream::Batch>();
  }
  stream.load = pulled->load;
  stream.seq = LoadSeq(pulled->number);
  stream.used = pulled->used;
  return std::optional(std::move(pulled->tensors));
}

Result<std::optional<stream::Batch>> LoadReceiver::PullInPlace(Stream& stream) {
  const std::string whom = StrCat("policy rank ", stream.source.policy);
  if (stream.channel->saw_last()) {
    return std::optional<stream::Batch>();
  }
  const auto load = stream.channel->Next();
  if (!load.has_value()) {
    return load.status().WithContext(whom);
  }
  SharedLoad* const slot = stream.slots[load->slot_index];
  REFIT_RETURN_IF_ERROR(stream::CheckBucket(load->bucket, slot->capacity()).WithContext(whom));
  stream.load = slot;
  stream.seq = load->bucket.seq;
  stream.used = load->bucket.used;
  if (load->bucket.entries.empty() && load->bucket.is_last) {
    return std::optional<stream::Batch>();
  }
  stream::Batch batch;
  batch.reserve(load->bucket.entries.size());
  for (const stream::Entry& entry : load->bucket.entries) {
    batch.push_back({entry.spec, static_cast<std::size_t>(entry.offset)});
  }
  return std::optional(std::move(batch));
}

// One aligned group as `update` calls; the streams in `spent` have emitted their whole load with it.
Status LoadReceiver::Prepare(const stream::AlignedGroup& group, const std::vector<std::size_t>& spent) {
  REFIT_ASSIGN_OR_RETURN(std::vector<stream::AlignedGroup> calls, stream::SplitIntoCalls(group, options_.split));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    PreparedCall prepared = MakeCall(calls[i]);
    if (i + 1 == calls.size()) {
      for (const std::size_t stream : spent) {
        prepared.spent.push_back({stream, streams_[stream].seq});
      }
    }
    const bool queued = shared_.Wait(
        [&prepared](Shared& shared) {
          if (!shared.stopped && shared.ready.size() < kPreparedCalls) {
            shared.ready.push_back(std::move(prepared));
            return true;
          }
          return shared.stopped;
        },
        deadline_);
    if (!queued) {
      return DeadlineExceeded(StrCat("engine ", options_.slot, " took no load within the transfer's budget"));
    }
    post_(peer::LoadReady{options_.start.stamp.attempt});
  }
  return shared_.With([](Shared& shared) { return shared.stopped ? Aborted("the transfer was stopped") : OkStatus(); });
}

LoadReceiver::PreparedCall LoadReceiver::MakeCall(const stream::AlignedGroup& group) const {
  PreparedCall prepared;
  prepared.call.ranks.resize(options_.tp_size);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = streams_[i];
    engine::RankPayload payload;
    payload.tensors.reserve(group[i].size());
    ByteCount bytes = 0;
    for (const stream::BatchTensor& tensor : group[i]) {
      payload.tensors.push_back({tensor.spec, static_cast<ByteCount>(tensor.location)});
      bytes += *weights::SizeOf(tensor.spec);  // checked when the load was
    }
    const std::size_t ranks = stream.source.tp_ranks.size();
    prepared.uses.push_back({stream.load, ranks});
    prepared.totals.tensors += group[i].size() * ranks;
    prepared.totals.bytes += bytes * ranks;
    for (std::size_t reader = 0; reader < ranks; ++reader) {
      const std::uint32_t rank = stream.source.tp_ranks[reader];
      payload.load = stream.load->Describe(reader, stream.used);
      prepared.call.ranks[REFIT_MUTANT("RC-PAY-03/rotate-streams", rank, (rank + 1) % options_.tp_size)] = payload;
    }
  }
  prepared.totals.loads = 1;
  return prepared;
}

void LoadReceiver::PostNext(engine::Engine& engine, const peer::PostUpdate& update) {
  PreparedCall prepared;
  const bool taken = shared_.With([&prepared](Shared& shared) {
    if (shared.stopped || shared.ready.empty()) {
      return false;
    }
    prepared = std::move(shared.ready.front());
    shared.ready.pop_front();
    ++shared.in_flight;
    return true;
  });
  if (!taken) {
    post_(peer::EngineAnswered{update.call, {sync::AnswerKind::kRefused, "not sent: the transfer was stopped", {}}});
    return;
  }
  prepared.call.label = update.label;
  const Instant begun = exec::Now();
  const sync::Answer answer = Install(engine, prepared, update.deadline);
  const bool installed = answer.kind == sync::AnswerKind::kOk;
  if (installed) {
    delivered_ += prepared.totals.bytes;
    for (const SpentLoad& spent : prepared.spent) {
      Stream& stream = streams_[spent.stream];
      if (stream.puller != nullptr) {
        stream.puller->GiveBack(spent.seq.value());
      } else {
        // A sender that is gone is noticed by the loop, which reads from it.
        static_cast<void>(stream.channel->Release(spent.seq));
      }
    }
  }
  // One step: the loop sees nothing in flight only after the answer is in the mailbox, and the destructor waits for it.
  shared_.With([&](Shared& shared) {
    post_(peer::EngineAnswered{update.call, answer});
    --shared.in_flight;
    if (installed) {
      shared.totals.tensors += prepared.totals.tensors;
      shared.totals.loads += prepared.totals.loads;
      shared.totals.bytes += prepared.totals.bytes;
      shared.totals.installing += exec::Now() - begun;
    }
  });
}

sync::Answer LoadReceiver::Install(engine::Engine& engine, const PreparedCall& prepared, Duration deadline) {
  const Instant until = exec::Now() + deadline;
  const auto add_readers = [&prepared] {
    for (const LoadUse& use : prepared.uses) {
      use.load->AddReaders(use.readers);
    }
  };
  // Before the POST, never after: a fast rank would take the count to 0 and unlink the object (RC-PAY-09).
  const bool before = REFIT_MUTANT("RC-PAY-09/add-after-post", true, false);
  if (before) {
    add_readers();
  }
  sync::Answer answer = engine.Update(prepared.call, deadline);
  if (!before) {
    add_readers();
  }
  // The count, not the answer, says that a rank is done (RC-PAY-05).
  const bool wait = REFIT_MUTANT("RC-PAY-05/free-on-reply", true, false);
  if (answer.kind != sync::AnswerKind::kOk || !wait) {
    return answer;
  }
  for (const LoadUse& use : prepared.uses) {
    if (!exec::WaitUntil([&use] { return use.load->free(); }, until)) {
      return {sync::AnswerKind::kNone, StrCat("a rank still holds its load, ", use.load->HeldText()), answer.elapsed};
    }
  }
  return answer;
}

Status LoadReceiver::WaitForCaller() {
  bool stopped = false;
  const bool done = shared_.Wait(
      [&stopped](const Shared& shared) {
        stopped = shared.stopped;
        return stopped || (shared.ready.empty() && shared.in_flight == 0);
      },
      deadline_);
  if (!done) {
    return DeadlineExceeded(StrCat("engine ", options_.slot, " did not install its last load in time"));
  }
  return stopped ? Aborted("the transfer was stopped") : OkStatus();
}

}  // namespace refit::runtime
