// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// RX-BIND-02: a link counts only when a block of random bytes came over the path that weights will take.

#include "refit/runtime/link_proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "refit/base/str.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"
#include "refit/rpc/policy_rpc.h"
#include "tests/support/temp_folder.h"

namespace refit::runtime {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr ByteCount kLoadBytes = 32 * kKiB;
constexpr RunId kRun{{1, 1}};
constexpr Incarnation kWorker{{2, 2}};
const rpc::Offer kMapped{"shm", stream::PackUnit::kLoad, kLoadBytes, rpc::DigestKind::kXxh3};
const rpc::Offer kFetched{"loopback", stream::PackUnit::kPiece, 8 * kKiB, rpc::DigestKind::kXxh3};

// A policy worker that answers handshakes only.
class Worker final : public rpc::PolicyHandler {
 public:
  enum class Fault { kNone, kTurnABit, kSayNothing };

  explicit Worker(const std::string& folder) : source(*Source::Open(folder)) {}
  sync::PolicyReply Execute(const sync::PolicyCommand& command) override {
    return {.stamp = command.stamp,
            .kind = sync::ReplyKind::kFailed,
            .status = Unavailable("not here"),
            .manifest = nullptr,
            .digest = {},
            .totals = {}};
  }
  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string&, weights::Hashing) override {
    return NotFound("not here");
  }
  void Serve(const rpc::OpenStream& open, rpc::SenderStream& stream) override {
    const Instant deadline = exec::Now() + open.budget;
    if (fault == Fault::kSayNothing) {
      asked = true;
      exec::WaitUntil([&stream] { return stream.broken(); }, deadline);
      return;
    }
    Status status = CheckReceiver(open, own);
    if (status.ok()) {
      status = Prove(open, stream, deadline);
    }
    if (!status.ok()) {
      static_cast<void>(stream.Send(rpc::StreamFailed{open.stamp.attempt, status}));
    }
    served = status;
    ++ended;
  }

  std::shared_ptr<Source> source;
  TransportSet transports{{}};
  LoadSlotSet slots{SlotIndex(0), transports};
  rpc::SenderIdentity own{.run = kRun, .term = Term(1), .incarnation = kWorker};
  rpc::SenderIdentity told = own;         // what it says of itself
  std::optional<ByteCount> bucket_bytes;  // that it claims
  Fault fault = Fault::kNone;
  std::vector<std::string> descriptors;
  std::atomic<bool> asked = false;
  Status served;
  std::atomic<int> ended = 0;

 private:
  // Between the digest and the bytes: what the control channel says is right, what lies in the slot is not.
  class Spoiling final : public rpc::SenderStream {
   public:
    Spoiling(rpc::SenderStream& inner, Worker& worker) : inner_(inner), worker_(worker) {}
    Status Send(const rpc::SenderMessage& message) override {
      if (worker_.fault == Fault::kTurnABit && std::holds_alternative<rpc::LoadAnnouncement>(message)) {
        worker_.slots.data(0).bytes[kProofBytes - 1] ^= std::byte{1};
      }
      return inner_.Send(message);
    }
    std::optional<rpc::LoadRelease> NextRelease(Instant deadline) override { return inner_.NextRelease(deadline); }
    bool broken() const override { return inner_.broken(); }

   private:
    rpc::SenderStream& inner_;
    Worker& worker_;
  };

  Status Prove(const rpc::OpenStream& open, rpc::SenderStream& stream, Instant deadline) {
    REFIT_ASSIGN_OR_RETURN(SendPlan plan, slots.Prepare(open, *source));
    plan.opened.sender = told;
    plan.opened.sender.bucket_bytes = bucket_bytes.value_or(open.offers[plan.opened.offer].bytes);
    descriptors = plan.opened.slots;
    Spoiling spoiling(stream, *this);
    return ServeProof(open, plan, slots, spoiling, deadline);
  }
};

class LinkProofTest : public ::testing::Test {
 protected:
  LinkProofTest() {
    const std::string model = folder_ / "model";
    EXPECT_TRUE(checkpoint::WriteRandomCheckpoint(*checkpoint::RandomShape("tiny-llama"), 1, model).ok());
    worker_ = std::make_unique<Worker>(model);
    server_ = *rpc::ServePolicy("127.0.0.1:0", *worker_);
  }

  sync::Stamp Stamp() const { return {kRun, Term(1), CommandSeq(1), {Term(1), 1}, WeightVersion(1), life_}; }
  rpc::OpenStream Open(const rpc::Offer& offer) const {
    return {.stamp = Stamp(),
            .slot = SlotIndex(0),
            .policy_incarnation = kWorker,
            .tp_ranks = {0},
            .offers = {offer},
            .budget = seconds(20)};
  }
  std::unique_ptr<LinkProof> Proof(const rpc::Offer& offer, Duration budget = seconds(20)) {
    LinkProofOptions options{.stamp = Stamp(),
                             .slot = SlotIndex(0),
                             .source = {PolicyRank(3), server_->address(), kWorker, {0}, LinkId(1)},
                             .offers = {offer},
                             .load_bytes = kLoadBytes,
                             .deadline = exec::Now() + budget};
    return std::make_unique<LinkProof>(std::move(options), *memory_);
  }

  test::TempFolder folder_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<rpc::Server> server_;
  TransportSet transports_{{}};
  const Incarnation life_{exec::RandomId()};
  std::unique_ptr<ReceiverMemory> memory_ = *ReceiverMemory::Make(transports_, life_, {});
};

// RC-PAY-10: the slots that the weights will use are there when the link is proved, and the attempt finds them.
TEST_F(LinkProofTest, ALinkIsProvedInTheSlotsThatTheWeightsWillUse) {
  for (const rpc::Offer& offer : {kMapped, kFetched}) {
    const auto proof = Proof(offer);
    const Status status = proof->Run();
    ASSERT_TRUE(status.ok()) << offer.transport << ": " << status.ToString();
    Worker& worker = *worker_;
    ASSERT_TRUE(exec::WaitUntil([&worker] { return worker.ended > 0; }, exec::Now() + seconds(10)));
    EXPECT_TRUE(worker.served.ok()) << worker.served.ToString();
    worker.ended = 0;
    const auto plan = worker.slots.Prepare(Open(offer), *worker.source);
    ASSERT_TRUE(plan.has_value()) << plan.status().ToString();
    EXPECT_EQ(plan->opened.slots, worker.descriptors) << offer.transport;
    proof->Close();
  }
}

TEST_F(LinkProofTest, ALinkCanBeProvedAgain) {
  for (int i = 0; i < 3; ++i) {
    const Status status = Proof(kMapped)->Run();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

// ✗ control-path ping: every message arrives, the bytes on the path do not.
TEST_F(LinkProofTest, APathThatBringsOtherBytesIsNoLink) {  // S19, S56
  worker_->fault = Worker::Fault::kTurnABit;
  for (const rpc::Offer& offer : {kMapped, kFetched}) {
    const Status status = Proof(offer)->Run();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(offer.transport));
  }
}

// ✗ skip
TEST_F(LinkProofTest, NoLinkWithoutAPolicyWorker) {
  server_.reset();
  const rpc::Offer offer = kMapped;
  sync::StreamSource nobody{PolicyRank(3), "127.0.0.1:1", kWorker, {0}, LinkId(1)};
  LinkProof proof({.stamp = Stamp(),
                   .slot = SlotIndex(0),
                   .source = nobody,
                   .offers = {offer},
                   .load_bytes = kLoadBytes,
                   .deadline = exec::Now() + seconds(5)},
                  *memory_);
  EXPECT_EQ(proof.Run().code(), StatusCode::kUnavailable);
}

TEST_F(LinkProofTest, AnotherProtocolIsRefusedByNameAtEitherEnd) {  // S90
  worker_->told.protocol = rpc::kStreamProtocol + 1;
  const Status status = Proof(kMapped)->Run();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(StrCat("speaks stream protocol ", rpc::kStreamProtocol + 1)));
  rpc::OpenStream open = Open(kMapped);
  EXPECT_TRUE(CheckReceiver(open, worker_->own).ok());
  open.protocol = rpc::kStreamProtocol - 1;
  const Status refused = CheckReceiver(open, worker_->own);
  EXPECT_THAT(refused.message(), HasSubstr(StrCat("engine 0 speaks stream protocol ", rpc::kStreamProtocol - 1)));
}

TEST_F(LinkProofTest, EachEndRefusesAnotherRunTermOrLife) {  // S70
  const rpc::OpenStream open = Open(kMapped);
  for (rpc::SenderIdentity own : {rpc::SenderIdentity{.run = {{9, 9}}, .term = Term(1), .incarnation = kWorker},
                                  rpc::SenderIdentity{.run = kRun, .term = Term(2), .incarnation = kWorker},
                                  rpc::SenderIdentity{.run = kRun, .term = Term(1), .incarnation = {{9, 9}}}}) {
    EXPECT_EQ(CheckReceiver(open, own).code(), StatusCode::kAborted);
    worker_->told = own;
    EXPECT_EQ(Proof(kMapped)->Run().code(), StatusCode::kAborted);
  }
}

TEST_F(LinkProofTest, BucketsOfAnotherSizeAreRefused) {
  worker_->bucket_bytes = 77;
  const Status status = Proof(kMapped)->Run();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("buckets of 77 bytes"));
}

TEST_F(LinkProofTest, ATransportThatTheSourceCannotServeIsNamed) {
  const Status status = Proof({"cuda_ipc", stream::PackUnit::kPiece, kLoadBytes, rpc::DigestKind::kGpuHash})->Run();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("link over cuda_ipc"));
}

TEST_F(LinkProofTest, AHandshakeThatIsGivenUpEndsAtOnce) {
  worker_->fault = Worker::Fault::kSayNothing;
  const auto proof = Proof(kMapped, seconds(60));
  Status status;
  std::thread runs([&] { status = proof->Run(); });
  ASSERT_TRUE(exec::WaitUntil([this] { return worker_->asked.load(); }, exec::Now() + seconds(10)));
  const Instant given_up = exec::Now();
  proof->Stop();
  runs.join();
  EXPECT_FALSE(status.ok());
  EXPECT_LT(exec::Now() - given_up, seconds(30));
}

TEST_F(LinkProofTest, AHandshakeWithoutAnAnswerEndsWithTheBindsBudget) {
  worker_->fault = Worker::Fault::kSayNothing;
  const Status status = Proof(kMapped, std::chrono::milliseconds(200))->Run();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("link over shm"));
}

}  // namespace
}  // namespace refit::runtime
