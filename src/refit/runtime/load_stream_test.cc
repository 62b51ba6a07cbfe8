// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One stream of loads from SendLoads to LoadReceiver, over the real control channel and real shared memory; the engine
// is a double that opens its payloads as ranks do.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "refit/base/str.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/checkpoint/safetensors_writer.h"
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

std::unique_ptr<device::SharedMemory> OpenLoad(const engine::RankPayload& payload) {
  const std::string& name = std::get<engine::HostLoad>(payload.load).shm_name;
  auto opened = device::SharedMemory::Open(name, std::filesystem::file_size("/dev/shm" + name));
  EXPECT_TRUE(opened.has_value()) << opened.status().ToString();
  return opened.has_value() ? *std::move(opened) : nullptr;
}

// Plays the ranks of a server: rank r opens payload r only, keeps what it read, and takes one off the count.
class RankDouble final : public engine::Engine {
 public:
  sync::Answer Update(const engine::UpdateCall& call, Duration) override {
    if (refuse_next) {
      refuse_next = false;
      return {sync::AnswerKind::kRefused, "refused by the test", {}};
    }
    installed.resize(call.ranks.size());
    for (std::size_t rank = 0; rank < call.ranks.size(); ++rank) {
      const auto object = OpenLoad(call.ranks[rank]);
      counts.push_back(device::LoadSlot(object->bytes()).count());
      if (late) {
        lingering_.emplace_back([this, payload = call.ranks[rank], rank] {
          const auto mine = OpenLoad(payload);
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
  Result<std::uint64_t> RequestsInFlight(Duration) override { return std::uint64_t{0}; }
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

  std::vector<std::jthread> lingering_;
};

// A sender's stream that turns one bit of a packed bucket before it is announced.
class SpoilingStream final : public rpc::SenderStream {
 public:
  SpoilingStream(rpc::SenderStream& inner, const LoadSlotSet& slots, std::optional<LoadSeq> spoil)
      : inner_(inner), slots_(slots), spoil_(spoil) {}
  Status Send(const rpc::SenderMessage& message) override {
    const auto* announced = std::get_if<rpc::LoadAnnouncement>(&message);
    if (announced != nullptr && announced->bucket.seq == spoil_) {
      slots_.data(announced->slot_index).bytes[announced->bucket.used - 1] ^= std::byte{1};
    }
    return inner_.Send(message);
  }
  std::optional<rpc::LoadRelease> NextRelease(Instant deadline) override { return inner_.NextRelease(deadline); }
  bool broken() const override { return inner_.broken(); }

 private:
  rpc::SenderStream& inner_;
  const LoadSlotSet& slots_;
  const std::optional<LoadSeq> spoil_;
};

// A policy worker's service that sends one source, as often as it is asked.
class OneSource final : public rpc::PolicyHandler {
 public:
  OneSource(const std::string& folder, ByteCount load_bytes) : source(*Source::Open(folder)) {
    loads = *source->Cut(stream::PackUnit::kLoad, load_bytes);
  }
  sync::PolicyReply Execute(const sync::PolicyCommand& command) override {
    return {.stamp = command.stamp,
            .kind = sync::ReplyKind::kDone,
            .status = OkStatus(),
            .manifest = nullptr,
            .digest = {},
            .totals = {}};
  }
  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string&, weights::Hashing) override {
    return NotFound("not here");
  }
  void Serve(const rpc::OpenStream& open, rpc::SenderStream& stream) override {
    ended = false;
    const auto plan = slots.Prepare(open, *source);
    ASSERT_TRUE(plan.has_value()) << plan.status().ToString();
    descriptors = plan->opened.slots;
    ASSERT_TRUE(stream.Send(plan->opened).ok());
    if (foreign_first) {
      const stream::Bucket bucket{.seq = LoadSeq(0), .entries = {}, .used = 0, .is_last = true};
      ASSERT_TRUE(stream.Send(rpc::LoadAnnouncement{{Term(1), 77}, open.stamp.incarnation, 0, bucket, {}}).ok());
      ASSERT_TRUE(stream.Send(rpc::LoadAnnouncement{open.stamp.attempt, Incarnation{{5, 5}}, 0, bucket, {}}).ok());
    }
    SpoilingStream spoiling(stream, slots, spoil);
    result = SendLoads(open, *plan, *source, slots, spoiling, Digests::kOn, stop, exec::Now() + open.budget);
    ended = true;
  }

  std::shared_ptr<Source> source;
  std::shared_ptr<const std::vector<stream::PackedBucket>> loads;
  TransportSet transports{{}};
  LoadSlotSet slots{SlotIndex(0), transports};
  std::vector<std::string> descriptors;  // of the last stream's slots
  std::optional<LoadSeq> spoil;          // one bit of this bucket is turned after it was packed
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
      : sources_(sources), tp_size_(tp_size), load_bytes_(load_bytes) {
    offer = {"shm", stream::PackUnit::kLoad, load_bytes, rpc::DigestKind::kXxh3};
    for (std::size_t i = 0; i < sources.size(); ++i) {
      auto server = rpc::ServePolicy("127.0.0.1:0", *sources[i]);
      EXPECT_TRUE(server.has_value());
      sync::StreamSource& stream = streams_.emplace_back();
      stream.policy = PolicyRank(static_cast<std::uint32_t>(i));
      stream.address = (*server)->address();
      stream.incarnation = Incarnation{{1, i}};
      stream.tp_ranks = ranks[i];
      servers_.push_back(*std::move(server));
    }
  }

  // One transfer, of an attempt of its own; how it ended.
  peer::EngineAgentEvent Transfer() {
    attempt_ = {attempt_.term, attempt_.n + 1};
    exec::Mailbox<peer::EngineAgentEvent> events(64);
    LoadReceiver receiver(
        Options(), *memory_,
        [&events](peer::EngineAgentEvent event) { EXPECT_TRUE(events.Push(std::move(event)).ok()); }, delivered);
    while (true) {
      auto event = events.Pop(exec::Now() + kBudget);
      if (!event.has_value()) {
        ADD_FAILURE() << "the transfer neither ended nor failed";
        return peer::TransferFailed{attempt_, Internal("no event")};
      }
      if (std::holds_alternative<peer::LoadReady>(*event)) {
        receiver.PostNext(engine,
                          {.call = ++calls_, .attempt = attempt_, .label = std::nullopt, .deadline = seconds(5)});
      } else if (const auto* answered = std::get_if<peer::EngineAnswered>(&*event)) {
        if (answered->answer.kind != sync::AnswerKind::kOk) {
          return *std::move(event);
        }
      } else {
        if (std::holds_alternative<peer::TransferEnded>(*event)) {
          AwaitSenders();
        }
        return *std::move(event);
      }
    }
  }
  // Until every sender has what it needs to know: a receiver that goes away takes its last words with it.
  void AwaitSenders() const {
    for (const OneSource* source : sources_) {
      EXPECT_TRUE(exec::WaitUntil([source] { return source->ended.load(); }, exec::Now() + seconds(10)));
    }
  }

  // A transfer that is stopped while its first load waits for the caller; what the caller then answers.
  sync::Answer StopBeforeTheFirstUpdate() {
    exec::Mailbox<peer::EngineAgentEvent> events(64);
    LoadReceiver receiver(
        Options(), *memory_, [&events](peer::EngineAgentEvent event) { static_cast<void>(events.Push(event)); },
        delivered);
    const auto ready = events.Pop(exec::Now() + kBudget);
    EXPECT_TRUE(ready.has_value() && std::holds_alternative<peer::LoadReady>(*ready));
    receiver.Stop();
    receiver.PostNext(engine, {.call = 1, .attempt = attempt_, .label = std::nullopt, .deadline = seconds(5)});
    while (const auto event = events.Pop(exec::Now() + kBudget)) {
      if (const auto* answered = std::get_if<peer::EngineAnswered>(&*event)) {
        return answered->answer;
      }
    }
    return {sync::AnswerKind::kNone, "never answered", {}};
  }

  RankDouble engine;
  std::atomic<ByteCount> delivered = 0;
  rpc::Offer offer;

 private:
  LoadReceiverOptions Options() const {
    const sync::Stamp stamp{.run = {},
                            .term = Term(1),
                            .seq = CommandSeq(1),
                            .attempt = attempt_,
                            .version = WeightVersion(1),
                            .incarnation = incarnation_};
    return {.start = {stamp, streams_, kBudget},
            .slot = SlotIndex(0),
            .tp_size = tp_size_,
            .offers = {offer},
            .load_bytes = load_bytes_,
            .split = stream::DTypeSplit::kMixed};
  }

  const std::vector<OneSource*> sources_;
  const std::uint32_t tp_size_;
  const ByteCount load_bytes_;
  std::uint64_t calls_ = 0;
  AttemptId attempt_{Term(1), 1};
  const Incarnation incarnation_{exec::RandomId()};
  TransportSet transports_{{}};
  std::unique_ptr<ReceiverMemory> memory_ = *ReceiverMemory::Make(transports_, incarnation_, {});
  std::vector<sync::StreamSource> streams_;
  std::vector<std::unique_ptr<rpc::Server>> servers_;
};

std::string TextOf(const peer::EngineAgentEvent& event) {
  const auto* failed = std::get_if<peer::TransferFailed>(&event);
  const auto* answered = std::get_if<peer::EngineAnswered>(&event);
  return failed != nullptr ? failed->status.ToString() : answered != nullptr ? answered->answer.message : "ended";
}

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

// RC-SYNC: both ends count tensors' bytes alike, where alignment leaves gaps between them (RC-BKT-02, RC-BKT-05).
TEST(LoadStream, TotalsCountTensorsAndNotTheGapsBetweenThem) {
  test::TempFolder folder;
  const std::vector<weights::TensorSpec> specs = {{"a", weights::DType::kBfloat16, {3}},
                                                  {"b", weights::DType::kFloat32, {1}},
                                                  {"c", weights::DType::kBfloat16, {3}},
                                                  {"d", weights::DType::kFloat32, {2}}};
  auto writer = checkpoint::SafetensorsWriter::Create(folder / "model.safetensors", specs);
  ASSERT_TRUE(writer.has_value()) << writer.status().ToString();
  const std::vector<std::byte> bytes(6 + 4 + 6 + 8, std::byte{7});
  ASSERT_TRUE((*writer)->Append(bytes).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  for (const rpc::Offer& offer : {rpc::Offer{"shm", stream::PackUnit::kLoad, kLoadBytes, rpc::DigestKind::kXxh3},
                                  rpc::Offer{"loopback", stream::PackUnit::kPiece, 8, rpc::DigestKind::kXxh3}}) {
    OneSource source(folder.path(), kLoadBytes);
    Rig rig(1, {&source}, {{0}}, kLoadBytes);
    rig.offer = offer;
    const auto ended = rig.Transfer();
    ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended)) << offer.transport << ": " << TextOf(ended);
    ASSERT_TRUE(exec::WaitUntil([&source] { return source.ended.load(); }, exec::Now() + seconds(10)));
    EXPECT_EQ(std::get<peer::TransferEnded>(ended).totals.bytes, bytes.size());
    EXPECT_EQ(source.result.totals.bytes, bytes.size());
    EXPECT_EQ(source.result.totals.tensors, specs.size());
    ExpectHolds(rig.engine, 0, *source.source);
  }
}

// A link: 2 KiB pieces, so that tensors are cut and loads span pieces.
const rpc::Offer kPieces{"loopback", stream::PackUnit::kPiece, 2 * kKiB, rpc::DigestKind::kXxh3};

// RC-BKT-03, -08: pieces are fetched to their places, and every rank finds its tensors whole in loads of the agent's.
TEST(LoadStream, PiecesOfALinkBecomeLoads) {
  test::TempFolder folder;
  OneSource first(MakeModel(folder, 1), kLoadBytes);
  OneSource second(MakeModel(folder, 2), kLoadBytes);
  Rig rig(3, {&first, &second}, {{0, 2}, {1}}, kLoadBytes);
  rig.offer = kPieces;
  for (int transfer = 0; transfer < 3; ++transfer) {  // links, slots and loads are used again
    const auto ended = rig.Transfer();
    ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended)) << TextOf(ended);
    ExpectHolds(rig.engine, 0, *first.source);
    ExpectHolds(rig.engine, 1, *second.source);
    ExpectHolds(rig.engine, 2, *first.source);
    EXPECT_EQ(rig.delivered, first.source->manifest()->total_size() * 3);
    rig.delivered = 0;
  }
}

// D7: the root digest says what the weights are, not how they travelled.
TEST(LoadStream, ALinkAndAMappingHaveTheSameRootDigest) {
  test::TempFolder folder;
  const std::string model = MakeModel(folder, 1);
  OneSource mapped(model, kLoadBytes);
  OneSource linked(model, kLoadBytes);
  Rig in_place(1, {&mapped}, {{0}}, kLoadBytes);
  const auto mapped_ended = in_place.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(mapped_ended)) << TextOf(mapped_ended);
  Rig over_link(1, {&linked}, {{0}}, kLoadBytes);
  over_link.offer = kPieces;
  const auto linked_ended = over_link.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(linked_ended)) << TextOf(linked_ended);
  ASSERT_TRUE(exec::WaitUntil([&] { return mapped.ended && linked.ended; }, exec::Now() + seconds(10)));
  ASSERT_TRUE(linked.result.status.ok()) << linked.result.status.ToString();
  EXPECT_EQ(linked.result.root, mapped.result.root);
  EXPECT_EQ(linked.result.totals.tensors, mapped.result.totals.tensors);
  EXPECT_EQ(linked.result.totals.bytes, mapped.result.totals.bytes);
}

// A receiver that can only check the GPU's hash gets it from a source on the host, too.
TEST(LoadStream, AGpuHashIsCheckedOnTheHostToo) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  Rig rig(1, {&source}, {{0}}, 128 * kKiB);
  rig.offer = {"loopback", stream::PackUnit::kPiece, 32 * kKiB, rpc::DigestKind::kGpuHash};
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(rig.Transfer()));
  ExpectHolds(rig.engine, 0, *source.source);
}

// RX-SUM-04, L1: bytes that change between packing and landing are not installed.
TEST(LoadStream, APieceThatLandsOtherThanAnnouncedFailsTheTransfer) {  // S34, S56
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  source.spoil = LoadSeq(1);
  Rig rig(1, {&source}, {{0}}, kLoadBytes);
  rig.offer = kPieces;
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferFailed>(ended));
  const Status& status = std::get<peer::TransferFailed>(ended).status;
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("policy rank 0: piece 1 landed with digest"), std::string::npos) << status.message();
  ASSERT_TRUE(exec::WaitUntil([&source] { return source.ended.load(); }, exec::Now() + seconds(10)));
  source.spoil.reset();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(rig.Transfer()));
  ExpectHolds(rig.engine, 0, *source.source);
}

// The sender says what it could not serve; nothing else is tried in silence.
TEST(LoadStream, ASenderWithoutTheWishedTransportRefuses) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  const auto plan =
      source.slots.Prepare({.stamp = {},
                            .slot = SlotIndex(0),
                            .policy_incarnation = {},
                            .tp_ranks = {0},
                            .offers = {{"cuda_ipc", stream::PackUnit::kPiece, kLoadBytes, rpc::DigestKind::kGpuHash}},
                            .budget = kBudget},
                           *source.source);
  EXPECT_EQ(plan.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(plan.status().message().find("takes its weights by cuda_ipc, which cannot carry mapped files"),
            std::string::npos)
      << plan.status().message();
}

// RC-PAY-03, RC-ALN-03: payload i is rank i's; the two policy ranks hold other bytes under the same names.
TEST(LoadStream, EachRankGetsItsOwnPolicyWorkersBytes) {
  test::TempFolder folder;
  OneSource first(MakeModel(folder, 1), kLoadBytes);
  OneSource second(MakeModel(folder, 2), kLoadBytes);
  Rig rig(2, {&first, &second}, {{0}, {1}}, kLoadBytes);
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended)) << TextOf(ended);
  ExpectHolds(rig.engine, 0, *first.source);
  ExpectHolds(rig.engine, 1, *second.source);
}

// RC-TOPO-08, RC-PAY-09: one stream for all ranks, packed once; the count shows one reader per rank before the POST.
TEST(LoadStream, RanksWithOneSourceShareALoadAndAreCountedBeforeThePost) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  Rig rig(3, {&source}, {{0, 1, 2}}, kLoadBytes);
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended)) << TextOf(ended);
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
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended)) << TextOf(ended);
  rig.engine.Join();
  ExpectHolds(rig.engine, 0, *source.source);
}

// RX-XFER-01, RX-ID-04: what belongs to another attempt, or is meant for another life, is dropped.
TEST(LoadStream, AnnouncementsOfAnotherAttemptOrLifeAreDropped) {  // S24
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  source.foreign_first = true;
  Rig rig(1, {&source}, {{0}}, kLoadBytes);
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended)) << TextOf(ended);
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
  const std::vector<std::string> before = source.descriptors;
  const auto ended = rig.Transfer();
  ASSERT_TRUE(std::holds_alternative<peer::TransferEnded>(ended)) << TextOf(ended);
  EXPECT_NE(source.descriptors[0], before[0]);
  EXPECT_EQ(source.descriptors[1], before[1]);  // its count came back: kept
  ExpectHolds(rig.engine, 0, *source.source);
}

// Of rank 0, that maps its loads.
rpc::OpenStream Open() {
  return {.stamp = {.run = {},
                    .term = Term(1),
                    .seq = CommandSeq(1),
                    .attempt = kAttempt,
                    .version = WeightVersion(1),
                    .incarnation = Incarnation{{1, 2}}},
          .slot = SlotIndex(0),
          .policy_incarnation = Incarnation{{1, 0}},
          .tp_ranks = {0},
          .offers = {{"shm", stream::PackUnit::kLoad, kLoadBytes, rpc::DigestKind::kXxh3}},
          .budget = kBudget};
}

// C6: nobody may break the link to an engine that is frozen or cut off; who feeds it goes on without it.
TEST(LoadStream, AReceiverThatGivesNothingBackHasLeft) {
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  const auto server = rpc::ServePolicy("127.0.0.1:0", source);
  ASSERT_TRUE(server.has_value());
  rpc::OpenStream open = Open();
  open.patience = std::chrono::milliseconds(300);
  const auto stream = rpc::ReceiverStream::Open((*server)->address(), open, exec::Now() + kBudget);
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE(exec::WaitUntil([&source] { return source.ended.load(); }, exec::Now() + seconds(10)));
  EXPECT_EQ(source.result.end, SendEnd::kReceiverLeft);
}

// RX-XFER-02: the release of another attempt frees nothing, so its load slot is not packed over.
TEST(LoadStream, AReleaseOfAnotherAttemptFreesNoSlot) {  // S25
  test::TempFolder folder;
  OneSource source(MakeModel(folder, 1), kLoadBytes);
  ASSERT_GT(source.loads->size(), 6U);
  const auto server = rpc::ServePolicy("127.0.0.1:0", source);
  ASSERT_TRUE(server.has_value());
  const auto stream = rpc::ReceiverStream::Open((*server)->address(), Open(), exec::Now() + kBudget);
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
