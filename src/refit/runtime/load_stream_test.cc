// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One stream of loads from SendLoads to LoadReceiver, over the real control channel and real shared memory; the engine
// is a double that opens its payloads as ranks do.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "refit/base/str.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/exec/clock.h"
#include "refit/exec/mailbox.h"
#include "refit/exec/random.h"
#include "refit/rpc/policy_rpc.h"
#include "refit/runtime/load_receiver.h"
#include "refit/runtime/load_sender.h"
#include "refit/transport/shm/shm_transport.h"
#include "tests/support/temp_folder.h"

namespace refit::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kBudget = seconds(20);
const AttemptId kAttempt{Term(1), 1};

std::unique_ptr<device::SharedMemory> OpenLoad(const engine::RankPayload& payload, ByteCount capacity) {
  auto opened = device::SharedMemory::Open(std::get<engine::HostLoad>(payload.load).shm_name,
                                           device::LoadSlot::ObjectSize(capacity));
  EXPECT_TRUE(opened.has_value()) << opened.status().ToString();
  return opened.has_value() ? *std::move(opened) : nullptr;
}

// Plays the ranks of a server: rank r opens payload r only, keeps what it read, and takes one off the count.
class RankDouble final : public engine::Engine {
 public:
  explicit RankDouble(ByteCount capacity) : capacity_(capacity) {}

  sync::Answer Update(const engine::UpdateCall& call, Duration) override {
    if (refuse_next) {
      refuse_next = false;
      return {sync::AnswerKind::kRefused, "refused by the test", {}};
    }
    installed.resize(call.ranks.size());
    for (std::size_t rank = 0; rank < call.ranks.size(); ++rank) {
      const auto object = OpenLoad(call.ranks[rank], capacity_);
      counts.push_back(device::LoadSlot(object->bytes()).count());
      if (late) {
        lingering_.emplace_back([this, payload = call.ranks[rank], rank] {
          const auto mine = OpenLoad(payload, capacity_);
          std::this_thread::yield();
          exec::WaitUntil([] { return false; }, exec::Now() + milliseconds(5));  // a slow rank, after the answer
          Install(*mine, payload, rank);
        });
      } else {
        Install(*object, call.ranks[rank], rank);
      }
    }
    return {sync::AnswerKind::kOk, "", {}};
  }
  void Join() { lingering_.clear(); }

  Result<engine::EngineDescription> Describe(Duration) override { return engine::EngineDescription{}; }
  sync::Answer Call(sync::Operation, WeightVersion, Duration) override { return {sync::AnswerKind::kOk, "", {}}; }
  Result<std::vector<engine::RankHashes>> Checksums(Duration) override { return std::vector<engine::RankHashes>{}; }
  Status Probe(Duration) override { return OkStatus(); }
  Result<engine::Generation> Generate(const engine::GenerateRequest&, Duration) override {
    return engine::Generation{};
  }

  std::vector<std::map<std::string, std::vector<std::byte>>> installed;  // per rank
  std::vector<std::int32_t> counts;                                      // as each rank found them
  bool late = false;
  bool refuse_next = false;

 private:
  void Install(device::SharedMemory& object, const engine::RankPayload& payload, std::size_t rank) {
    device::LoadSlot slot(object.bytes());
    for (const engine::PayloadTensor& tensor : payload.tensors) {
      const auto bytes = slot.data().subspan(tensor.offset, *weights::SizeOf(tensor.spec));
      installed[rank][tensor.spec.name].assign(bytes.begin(), bytes.end());
    }
    slot.AddReaders(-1);
  }

  const ByteCount capacity_;
  std::vector<std::jthread> lingering_;
};

// A policy worker's service that sends one source, as often as it is asked.
class OneSource final : public rpc::PolicyHandler {
 public:
  OneSource(const std::string& folder, ByteCount load_bytes) : source(*Source::Open(folder)) {
    loads = *source->Loads(load_bytes);
    load_bytes_ = load_bytes;
    capacity = stream::LargestBucket(*loads);
  }
  sync::PolicyReply Execute(const sync::PolicyCommand& command) override {
    return {.stamp = command.stamp,
            .kind = sync::ReplyKind::kDone,
            .status = OkStatus(),
            .manifest = nullptr,
            .digest = {},
            .totals = {}};
  }
  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string&, std::uint32_t) override {
    return NotFound("not here");
  }
  void Serve(const rpc::OpenStream& open, rpc::SenderStream& stream) override {
    ASSERT_TRUE(slots.Prepare(*loads, load_bytes_).ok());
    ASSERT_TRUE(stream.Send(rpc::StreamOpened{open.stamp.attempt, transport.Address(), slots.descriptors()}).ok());
    if (foreign_first) {
      const stream::Bucket bucket{.seq = LoadSeq(0), .entries = {}, .used = 0, .is_last = true};
      ASSERT_TRUE(stream.Send(rpc::LoadAnnouncement{{Term(1), 77}, open.stamp.incarnation, 0, bucket, {}}).ok());
      ASSERT_TRUE(stream.Send(rpc::LoadAnnouncement{open.stamp.attempt, Incarnation{{5, 5}}, 0, bucket, {}}).ok());
    }
    result = SendLoads(open, *source, slots, stream, Digests::kOn, stop, exec::Now() + open.budget);
    ended = true;
  }

  std::shared_ptr<Source> source;
  std::shared_ptr<const std::vector<stream::PackedBucket>> loads;
  ByteCount load_bytes_ = 0;
  transport::ShmTransport transport;
  LoadSlotSet slots{SlotIndex(0), transport};
  ByteCount capacity = 0;
  bool foreign_first = false;
  std::atomic<bool> stop = false;
  std::atomic<bool> ended = false;
  SendResult result;
};

// Sender(s), receiver and engine double, driven as the agent's loop would.
class Rig {
 public:
  explicit Rig(std::uint32_t tp_size, std::vector<OneSource*> sources, std::vector<std::vector<std::uint32_t>> ranks,
               ByteCount load_bytes)
      : engine(sources[0]->capacity), tp_size_(tp_size), load_bytes_(load_bytes) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      auto server = rpc::ServePolicy("127.0.0.1:0", *sources[i]);
      EXPECT_TRUE(server.has_value());
      streams_.push_back(
          {PolicyRank(static_cast<std::uint32_t>(i)), (*server)->address(), Incarnation{{1, i}}, ranks[i]});
      servers_.push_back(*std::move(server));
    }
  }

  // One transfer; how it ended.
  peer::EngineAgentEvent Transfer() {
    exec::Mailbox<peer::EngineAgentEvent> events(64);
    LoadReceiver receiver(
        Options(), memory_,
        [&events](peer::EngineAgentEvent event) { EXPECT_TRUE(events.Push(std::move(event)).ok()); }, delivered);
    while (true) {
      auto event = events.Pop(exec::Now() + kBudget);
      if (!event.has_value()) {
        ADD_FAILURE() << "the transfer neither ended nor failed";
        return peer::TransferFailed{kAttempt, Internal("no event")};
      }
      if (std::holds_alternative<peer::LoadReady>(*event)) {
        receiver.PostNext(engine,
                          {.call = ++calls_, .attempt = kAttempt, .label = std::nullopt, .deadline = seconds(5)});
      } else if (const auto* answered = std::get_if<peer::EngineAnswered>(&*event)) {
        if (answered->answer.kind != sync::AnswerKind::kOk) {
          return *std::move(event);
        }
      } else {
        return *std::move(event);
      }
    }
  }

  // A transfer that is stopped while its first load waits for the caller; what the caller then answers.
  sync::Answer StopBeforeTheFirstUpdate() {
    exec::Mailbox<peer::EngineAgentEvent> events(64);
    LoadReceiver receiver(
        Options(), memory_, [&events](peer::EngineAgentEvent event) { static_cast<void>(events.Push(event)); },
        delivered);
    const auto ready = events.Pop(exec::Now() + kBudget);
    EXPECT_TRUE(ready.has_value() && std::holds_alternative<peer::LoadReady>(*ready));
    receiver.Stop();
    receiver.PostNext(engine, {.call = 1, .attempt = kAttempt, .label = std::nullopt, .deadline = seconds(5)});
    while (const auto event = events.Pop(exec::Now() + kBudget)) {
      if (const auto* answered = std::get_if<peer::EngineAnswered>(&*event)) {
        return answered->answer;
      }
    }
    return {sync::AnswerKind::kNone, "never answered", {}};
  }

  RankDouble engine;
  std::atomic<ByteCount> delivered = 0;

 private:
  LoadReceiverOptions Options() const {
    const sync::Stamp stamp{.run = {},
                            .term = Term(1),
                            .seq = CommandSeq(1),
                            .attempt = kAttempt,
                            .version = WeightVersion(1),
                            .incarnation = incarnation_};
    return {.start = {stamp, streams_, kBudget},
            .slot = SlotIndex(0),
            .tp_size = tp_size_,
            .load_bytes = load_bytes_,
            .split = stream::DTypeSplit::kMixed};
  }

  const std::uint32_t tp_size_;
  const ByteCount load_bytes_;
  std::uint64_t calls_ = 0;
  const Incarnation incarnation_{exec::RandomId()};
  transport::ShmTransport transport_;
  SenderMemory memory_{transport_, incarnation_};
  std::vector<sync::StreamSource> streams_;
  std::vector<std::unique_ptr<rpc::Server>> servers_;
};

std::string MakeModel(const test::TempFolder& folder, std::uint64_t seed) {
  const std::string path = folder / StrCat("model-", seed);
  EXPECT_TRUE(checkpoint::WriteRandomCheckpoint(*checkpoint::RandomShape("tiny-llama"), seed, path).ok());
  return path;
}

void ExpectHolds(const RankDouble& engine, std::size_t rank, Source& source) {
  ASSERT_LT(rank, engine.installed.size());
  ASSERT_EQ(engine.installed[rank].size(), source.manifest()->tensor_count());
  for (std::size_t i = 0; i < source.manifest()->tensor_count(); ++i) {
    const Bytes expected = source.tensors()[i];
    const auto& actual = engine.installed[rank].at(source.manifest()->tensors()[i].name);
    EXPECT_TRUE(actual.size() == expected.size() && std::memcmp(actual.data(), expected.data(), actual.size()) == 0)
        << "rank " << rank << ", " << source.manifest()->tensors()[i].name;
  }
}

constexpr ByteCount kLoadBytes = 32 * kKiB;

// RC-PAY-03, RC-ALN-03: payload i is rank i's; the two policy ranks hold other bytes under the same names.
TEST(LoadStream, EachRankGetsItsOwnPolicyWorkersBytes) {
  test::TempFolder folder;
  OneSource first(MakeModel(folder, 1), kLoadBytes);
  OneSource second(MakeModel(folder, 2), kLoadBytes);
  Rig rig(2, {&first, &second}, {{0}, {1}}, kLoadBytes);
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended));
  ExpectHolds(rig.engine, 0, *first.source);
  ExpectHolds(rig.engine, 1, *second.source);
}

// RC-TOPO-08, RC-PAY-09: one stream for all ranks, packed once; the count shows one reader per rank before the POST.
TEST(LoadStream, RanksWithOneSourceShareALoadAndAreCountedBeforeThePost) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  Rig rig(3, {&source}, {{0, 1, 2}}, kLoadBytes);
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended));
  const auto& totals = std::get<peer::TransferEnded>(ended).totals;
  EXPECT_EQ(totals.bytes, source.source->manifest()->total_size() * 3);
  EXPECT_EQ(rig.delivered, totals.bytes);
  ASSERT_TRUE(exec::WaitUntil([&source] { return source.ended.load(); }, exec::Now() + seconds(10)));
  EXPECT_TRUE(source.result.status.ok()) << source.result.status.ToString();
  EXPECT_EQ(source.result.totals.bytes, source.source->manifest()->total_size());
  for (std::size_t i = 0; i < rig.engine.counts.size(); ++i) {
    EXPECT_EQ(rig.engine.counts[i], 4 - static_cast<std::int32_t>(i % 3));  // ours, and the ranks that have not let go
  }
}

// RC-PAY-05: a load slot is reused when every rank has let go, not when the call was answered.
TEST(LoadStream, ASlotIsNotPackedAgainWhileARankStillReads) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  Rig rig(1, {&source}, {{0}}, kLoadBytes);
  rig.engine.late = true;
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended));
  rig.engine.Join();
  ExpectHolds(rig.engine, 0, *source.source);
}

// RX-XFER-01, RX-ID-04: what belongs to another attempt, or is meant for another life, is dropped.
TEST(LoadStream, AnnouncementsOfAnotherAttemptOrLifeAreDropped) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  source.foreign_first = true;
  Rig rig(1, {&source}, {{0}}, kLoadBytes);
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended));
  ExpectHolds(rig.engine, 0, *source.source);
}

// RC-PAY-09: a refusal never gives the count back; the load slot is unlinked and replaced, never reset (settled D2).
TEST(LoadStream, AfterARefusalTheLoadSlotIsReplaced) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  Rig rig(1, {&source}, {{0}}, kLoadBytes);
  rig.engine.refuse_next = true;
  EXPECT_TRUE(std::holds_alternative<peer::EngineAnswered>(rig.Transfer()));
  ASSERT_TRUE(exec::WaitUntil([&source] { return source.ended.load(); }, exec::Now() + seconds(10)));
  EXPECT_EQ(source.result.end, SendEnd::kReceiverLeft);
  const std::vector<std::string> before = source.slots.descriptors();
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended));
  EXPECT_NE(source.slots.descriptors()[0], before[0]);
  EXPECT_EQ(source.slots.descriptors()[1], before[1]);  // its count came back: kept
  ExpectHolds(rig.engine, 0, *source.source);
}

// RX-XFER-02: the release of another attempt frees nothing, so its load slot is not packed over.
TEST(LoadStream, AReleaseOfAnotherAttemptFreesNoSlot) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  ASSERT_GT(source.loads->size(), 6U);
  const auto server = rpc::ServePolicy("127.0.0.1:0", source);
  ASSERT_TRUE(server.has_value());
  const rpc::OpenStream open{.stamp = {.run = {},
                                       .term = Term(1),
                                       .seq = CommandSeq(1),
                                       .attempt = kAttempt,
                                       .version = WeightVersion(1),
                                       .incarnation = Incarnation{{1, 2}}},
                             .slot = SlotIndex(0),
                             .policy_incarnation = Incarnation{{1, 0}},
                             .tp_ranks = {0},
                             .load_bytes = kLoadBytes,
                             .budget = kBudget};
  const auto stream = rpc::ReceiverStream::Open((*server)->address(), open, exec::Now() + kBudget);
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());  // opened
  const std::size_t slots = source.slots.count();
  for (std::size_t i = 0; i < slots; ++i) {
    ASSERT_TRUE((*stream)->Next().has_value());
  }
  // In this order: a foreign word about load 1, then a true one about load 0. Only load 0's slot is packed again.
  ASSERT_TRUE((*stream)->Release({AttemptId{Term(1), 77}, LoadSeq(1)}).ok());
  ASSERT_TRUE((*stream)->Release({kAttempt, LoadSeq(0)}).ok());
  ASSERT_TRUE((*stream)->Next().has_value());
  source.stop = true;
  std::size_t more = 0;
  for (auto message = (*stream)->Next(); message.has_value(); message = (*stream)->Next()) {
    more += std::holds_alternative<rpc::LoadAnnouncement>(*message) ? 1U : 0U;
  }
  EXPECT_EQ(more, 0U);
}

// Stopped while an update waits for its turn: the engine is not called any more, and the call is answered all the same.
TEST(LoadStream, AStoppedTransferPostsNothingMore) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  Rig rig(1, {&source}, {{0}}, kLoadBytes);
  EXPECT_EQ(rig.StopBeforeTheFirstUpdate().kind, sync::AnswerKind::kRefused);
  EXPECT_TRUE(rig.engine.counts.empty());
}

// RX-XFER-13: told to stop, the sender ends within its check interval.
TEST(LoadStream, AStoppedSenderEndsTheStream) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  source.stop = true;
  Rig rig(1, {&source}, {{0}}, kLoadBytes);
  const auto ended = rig.Transfer();
  EXPECT_TRUE(std::holds_alternative<peer::TransferFailed>(ended));
  EXPECT_EQ(source.result.end, SendEnd::kStopped);
}

}  // namespace
}  // namespace refit::runtime
