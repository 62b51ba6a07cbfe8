// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages survive the wire, hostile ones are refused, and every call ends by its deadline.

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/exec/mailbox.h"
#include "refit/rpc/agent_rpc.h"
#include "refit/rpc/codec.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/rpc/policy_rpc.h"

namespace refit::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

sync::Stamp SomeStamp() {
  return {.run = RunId{{1, 2}},
          .term = Term(3),
          .seq = CommandSeq(4),
          .attempt = {Term(3), 5},
          .version = WeightVersion(6),
          .incarnation = Incarnation{{7, 8}}};
}

std::shared_ptr<const weights::Manifest> SomeManifest() {
  auto manifest =
      weights::Manifest::Make({{"a", weights::DType::kBfloat16, {2, 3}}, {"s", weights::DType::kFloat32, {}}});
  return std::make_shared<const weights::Manifest>(*std::move(manifest));
}

// RX-ID-01: the stamp arrives as it left, on every message.
TEST(Codec, AnAgentCommandSurvivesTheWire) {
  sync::AgentCommand command{.stamp = SomeStamp(),
                             .kind = sync::AgentCommandKind::kAttempt,
                             .budget = seconds(2),
                             .manifest = SomeManifest(),
                             .streams = {{PolicyRank(1), "127.0.0.1:1", Incarnation{{9, 9}}, {0, 1, 2}, LinkId(4)}},
                             .digest = Digest{{10, 11}}};
  v1::AgentCommand wire;
  Encode(command, &wire);
  const auto decoded = Decode(wire);
  ASSERT_TRUE(decoded.has_value()) << decoded.status().ToString();
  EXPECT_EQ(decoded->stamp, command.stamp);
  EXPECT_EQ(decoded->kind, command.kind);
  EXPECT_EQ(decoded->budget, command.budget);
  EXPECT_EQ(decoded->streams, command.streams);
  EXPECT_EQ(decoded->digest, command.digest);
  ASSERT_NE(decoded->manifest, nullptr);
  EXPECT_EQ(decoded->manifest->tensors()[0], command.manifest->tensors()[0]);
}

TEST(Codec, AnAnnouncementSurvivesTheWire) {
  const LoadAnnouncement sent{.attempt = {Term(1), 2},
                              .incarnation = Incarnation{{3, 4}},
                              .slot_index = 1,
                              .bucket = {.seq = LoadSeq(7),
                                         .entries = {{{"a", weights::DType::kBfloat16, {2, 3}}, 0, 12, 0}},
                                         .used = 12,
                                         .is_last = true},
                              .digest = Digest{{5, 6}}};
  v1::FromSender wire;
  Encode(SenderMessage(sent), &wire);
  const auto decoded = Decode(wire);
  ASSERT_TRUE(decoded.has_value());
  const auto& received = std::get<LoadAnnouncement>(*decoded);
  EXPECT_EQ(received.bucket, sent.bucket);
  EXPECT_EQ(received.attempt, sent.attempt);
  EXPECT_EQ(received.incarnation, sent.incarnation);
  EXPECT_EQ(received.digest, sent.digest);
}

TEST(Codec, WhatNoPeerOfOursCanMeanIsRefused) {
  EXPECT_FALSE(Decode(v1::AgentCommand()).has_value());  // kind 0
  v1::AgentCommand command;
  command.set_kind(99);
  EXPECT_FALSE(Decode(command).has_value());
  v1::AgentReply reply;
  reply.set_kind(1);
  EXPECT_FALSE(Decode(reply).has_value());  // no residue: there is no default
  EXPECT_FALSE(Decode(v1::FromSender()).has_value());
  EXPECT_FALSE(Decode(v1::OpenStream()).has_value());
  EXPECT_FALSE(DecodeHashKind(0).has_value());
  EXPECT_FALSE(DecodeHashKind(3).has_value());
  v1::PolicyReply with_manifest;
  with_manifest.set_kind(1);
  with_manifest.mutable_manifest()->add_tensors()->set_dtype("bfloat17");
  EXPECT_FALSE(Decode(with_manifest).has_value());
}

class FakeAgent final : public AgentHandler {
 public:
  explicit FakeAgent(Duration delay) : delay_(delay) {}
  sync::AgentReply Execute(const sync::AgentCommand& command) override {
    static_cast<void>(never_.Pop(exec::Now() + delay_));
    return {.stamp = command.stamp,
            .kind = sync::ReplyKind::kDone,
            .status = OkStatus(),
            .residue = sync::Residue::Old(WeightVersion(5)),
            .totals = {1, 2, 3, milliseconds(4), milliseconds(5)}};
  }
  ErrandReply Run(const EngineErrand& errand) override {
    errand_ = errand;
    return {.status = Unavailable("no such engine"), .gone = true, .highest_term = Term(4)};
  }
  Result<std::vector<weights::RankHashes>> Checksums(Incarnation) override {
    return std::vector<weights::RankHashes>{{TpRank(0), {{"w", "00"}}}};
  }
  ByteCount bytes_delivered() const override { return 77; }
  const EngineErrand& errand() const { return errand_; }
  void Finish() { EXPECT_TRUE(never_.Push(0).ok()); }  // the running command, before its delay

 private:
  Duration delay_;
  EngineErrand errand_;
  exec::Mailbox<int> never_{1};
};

sync::AgentCommand SomeCommand() {
  return {.stamp = SomeStamp(),
          .kind = sync::AgentCommandKind::kPause,
          .budget = seconds(1),
          .manifest = nullptr,
          .streams = {},
          .digest = {}};
}

Result<sync::AgentReply> Call(AgentClient& client, Duration deadline) {
  exec::Mailbox<Result<sync::AgentReply>> answered(1);
  client.Execute(SomeCommand(), deadline,
                 [&answered](Result<sync::AgentReply> reply) { EXPECT_TRUE(answered.Push(std::move(reply)).ok()); });
  auto reply = answered.Pop(exec::Now() + seconds(20));
  return reply.has_value() ? *std::move(reply) : Internal("done() never ran");
}

TEST(AgentRpc, AnErrandAndItsAnswerSurviveTheWire) {
  FakeAgent agent(Duration(0));
  const auto server = ServeAgent("127.0.0.1:0", agent);
  ASSERT_TRUE(server.has_value());
  const auto client = AgentClient::Connect((*server)->address());
  exec::Mailbox<Result<ErrandReply>> answered(1);
  client->Run({.run = RunId{{1, 2}},
               .term = Term(3),
               .kind = ErrandKind::kShutDown,
               .incarnation = Incarnation{{4, 5}},
               .budget = seconds(6)},
              seconds(10),
              [&answered](Result<ErrandReply> reply) { EXPECT_TRUE(answered.Push(std::move(reply)).ok()); });
  const auto reply = answered.Pop(exec::Now() + seconds(20));
  ASSERT_TRUE(reply.has_value() && reply->has_value());
  EXPECT_EQ((*reply)->status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE((*reply)->gone);
  EXPECT_EQ((*reply)->highest_term, Term(4));
  EXPECT_EQ(agent.errand().run, (RunId{{1, 2}}));
  EXPECT_EQ(agent.errand().term, Term(3));
  EXPECT_EQ(agent.errand().kind, ErrandKind::kShutDown);
  EXPECT_EQ(agent.errand().incarnation, (Incarnation{{4, 5}}));
  EXPECT_EQ(agent.errand().budget, seconds(6));
}

// What a killed agent leaves behind: nobody at its address.
TEST(AgentRpc, AnAddressThatRefusesIsToldFromOneThatListens) {
  FakeAgent agent(Duration(0));
  auto server = ServeAgent("127.0.0.1:0", agent);
  ASSERT_TRUE(server.has_value());
  const std::string address = (*server)->address();
  EXPECT_FALSE(NobodyListens(address, seconds(10)));
  server->reset();
  EXPECT_TRUE(NobodyListens(address, seconds(10)));
  EXPECT_FALSE(NobodyListens("no address", seconds(10)));
}

TEST(AgentRpc, ACommandIsAnsweredWithItsStamp) {
  FakeAgent agent(Duration(0));
  const auto server = ServeAgent("127.0.0.1:0", agent);
  ASSERT_TRUE(server.has_value());
  const auto client = AgentClient::Connect((*server)->address());
  const auto reply = Call(*client, seconds(10));
  ASSERT_TRUE(reply.has_value()) << reply.status().ToString();
  EXPECT_EQ(reply->stamp, SomeStamp());
  EXPECT_EQ(reply->totals, (sync::TransferTotals{1, 2, 3, milliseconds(4), milliseconds(5)}));
  EXPECT_EQ(*client->BytesDelivered(seconds(10)), 77U);
  EXPECT_EQ((*client->Checksums(Incarnation{}, seconds(10)))[0].hashes.at("w"), "00");
}

// RC-RPC-04: every call has a finite deadline.
TEST(AgentRpc, ASilentAgentEndsAtTheDeadline) {
  FakeAgent agent(milliseconds(500));
  const auto server = ServeAgent("127.0.0.1:0", agent);
  const auto client = AgentClient::Connect((*server)->address());
  EXPECT_EQ(Call(*client, milliseconds(50)).status().code(), StatusCode::kDeadlineExceeded);
}

// RC-ROLE-04: a refit is one call among others, each answered within its own deadline.
TEST(AgentRpc, OtherCallsAreAnsweredWhileACommandRuns) {
  FakeAgent agent(seconds(60));
  const auto server = ServeAgent("127.0.0.1:0", agent);
  const auto client = AgentClient::Connect((*server)->address());
  exec::Mailbox<Result<sync::AgentReply>> answered(1);
  client->Execute(SomeCommand(), seconds(60),
                  [&answered](Result<sync::AgentReply> reply) { EXPECT_TRUE(answered.Push(std::move(reply)).ok()); });
  EXPECT_EQ(*client->BytesDelivered(seconds(10)), 77U);
  EXPECT_TRUE(client->Checksums(Incarnation{}, seconds(10)).has_value());
  agent.Finish();
  const auto reply = answered.Pop(exec::Now() + seconds(20));
  ASSERT_TRUE(reply.has_value());
  EXPECT_TRUE(reply->has_value());
}

TEST(AgentRpc, NobodyThereIsAnErrorThatNamesTheAddress) {
  const auto client = AgentClient::Connect("127.0.0.1:1");
  const auto reply = Call(*client, seconds(5));
  ASSERT_FALSE(reply.has_value());
  EXPECT_NE(reply.status().message().find("127.0.0.1:1"), std::string::npos);
}

TEST(Server, APortInUseIsRefusedByName) {
  FakeAgent agent(Duration(0));
  const auto first = ServeAgent("127.0.0.1:0", agent);
  const auto second = ServeAgent((*first)->address(), agent);
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.status().message().find((*first)->address()), std::string::npos);
}

class FakePolicy final : public PolicyHandler {
 public:
  sync::PolicyReply Execute(const sync::PolicyCommand& command) override {
    return {.stamp = command.stamp,
            .kind = sync::ReplyKind::kDone,
            .status = OkStatus(),
            .manifest = SomeManifest(),
            .digest = {},
            .totals = {}};
  }
  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string& source,
                                                          weights::Hashing hashing) override {
    EXPECT_EQ(source, "/m");
    EXPECT_EQ(hashing, (weights::Hashing{2, ParameterHashKind::kGpu}));
    return NotFound("nothing leased");
  }
  void Serve(const OpenStream& open, SenderStream& stream) override {
    EXPECT_EQ(open.offers.size(), 2U);
    EXPECT_EQ(open.offers.back(), (Offer{"nixl", stream::PackUnit::kPiece, 512, DigestKind::kGpuHash}));
    EXPECT_TRUE(stream
                    .Send(StreamOpened{open.stamp.attempt,
                                       1,
                                       DigestKind::kGpuHash,
                                       "host:here",
                                       {"shm:/x:1"},
                                       4096,
                                       8192,
                                       {open.protocol + 1, open.stamp.run, Term(6), open.policy_incarnation, 77}})
                    .ok());
    for (std::uint64_t seq = 0; seq < 3; ++seq) {
      const stream::Bucket bucket{.seq = LoadSeq(seq), .entries = {}, .used = 0, .is_last = seq == 2};
      EXPECT_TRUE(stream.Send(LoadAnnouncement{open.stamp.attempt, open.stamp.incarnation, 0, bucket, {}}).ok());
      const auto release = stream.NextRelease(exec::Now() + seconds(10));
      ASSERT_TRUE(release.has_value());
      EXPECT_EQ(release->seq, LoadSeq(seq));
    }
    EXPECT_FALSE(stream.NextRelease(exec::Now() + seconds(10)).has_value());  // the receiver goes away
    EXPECT_TRUE(stream.broken());
  }
};

TEST(LoadStream, AnnouncementsAndReleasesAlternate) {
  FakePolicy policy;
  const auto server = ServePolicy("127.0.0.1:0", policy);
  ASSERT_TRUE(server.has_value());
  const OpenStream open{.stamp = SomeStamp(),
                        .slot = SlotIndex(0),
                        .policy_incarnation = Incarnation{{1, 1}},
                        .tp_ranks = {0},
                        .offers = {{"shm", stream::PackUnit::kLoad, 4096, DigestKind::kXxh3},
                                   {"nixl", stream::PackUnit::kPiece, 512, DigestKind::kGpuHash}},
                        .budget = seconds(10)};
  {
    auto stream = ReceiverStream::Open((*server)->address(), open, exec::Now() + seconds(10));
    ASSERT_TRUE(stream.has_value());
    const auto opened = (*stream)->Next();
    ASSERT_TRUE(opened.has_value()) << opened.status().ToString();
    EXPECT_EQ(std::get<StreamOpened>(*opened).slots[0], "shm:/x:1");
    EXPECT_EQ(std::get<StreamOpened>(*opened).offer, 1U);
    EXPECT_EQ(std::get<StreamOpened>(*opened).digests, DigestKind::kGpuHash);
    EXPECT_EQ(std::get<StreamOpened>(*opened).slot_bytes, 4096U);
    EXPECT_EQ(std::get<StreamOpened>(*opened).total_bytes, 8192U);
    const SenderIdentity& sender = std::get<StreamOpened>(*opened).sender;
    EXPECT_EQ(sender.protocol, kStreamProtocol + 1);
    EXPECT_EQ(sender.run, open.stamp.run);
    EXPECT_EQ(sender.term, Term(6));
    EXPECT_EQ(sender.incarnation, open.policy_incarnation);
    EXPECT_EQ(sender.bucket_bytes, 77U);
    for (std::uint64_t seq = 0; seq < 3; ++seq) {
      const auto announced = (*stream)->Next();
      ASSERT_TRUE(announced.has_value());
      EXPECT_EQ(std::get<LoadAnnouncement>(*announced).bucket.seq, LoadSeq(seq));
      EXPECT_TRUE((*stream)->Release({open.stamp.attempt, LoadSeq(seq)}).ok());
    }
  }
  const auto client = PolicyClient::Connect((*server)->address());
  EXPECT_EQ(client->ExpectedHashes("/m", {2, ParameterHashKind::kGpu}, seconds(10)).status().message(),
            "nothing leased");
}

TEST(LoadStream, AWaitingReceiverEndsAtItsDeadline) {
  class Silent final : public PolicyHandler {
   public:
    sync::PolicyReply Execute(const sync::PolicyCommand& command) override {
      return {.stamp = command.stamp,
              .kind = sync::ReplyKind::kStale,
              .status = Aborted("no"),
              .manifest = nullptr,
              .digest = {},
              .totals = {}};
    }
    Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string&, weights::Hashing) override {
      return NotFound("no");
    }
    void Serve(const OpenStream&, SenderStream& stream) override {
      EXPECT_FALSE(stream.NextRelease(exec::Now() + seconds(20)).has_value());
    }
  } policy;
  const auto server = ServePolicy("127.0.0.1:0", policy);
  const OpenStream open{.stamp = SomeStamp(),
                        .slot = SlotIndex(0),
                        .policy_incarnation = Incarnation{{1, 1}},
                        .tp_ranks = {0},
                        .offers = {{"shm", stream::PackUnit::kLoad, 4096, DigestKind::kXxh3}},
                        .budget = seconds(10)};
  auto stream = ReceiverStream::Open((*server)->address(), open, exec::Now() + milliseconds(100));
  ASSERT_TRUE(stream.has_value());
  EXPECT_FALSE((*stream)->Next().has_value());
}

class FakeController final : public ControllerHandler {
 public:
  Result<Membership> RegisterAgent(const AgentRegistration& registration) override {
    agent_ = registration;
    return Membership{
        .run = {}, .term = Term(1), .profile = "resilient", .launches_engines = agent_.attached, .protocol = protocol_};
  }
  Result<Membership> RegisterPolicy(const PolicyRegistration&) override { return NotFound("no"); }
  void AgentGone(const AgentEnd& end) override { end_ = end; }
  SyncReport Sync(const SyncRequest&, const ProgressSink&) override { return {}; }
  FleetReport GetStatus() override {
    FleetReport report;
    report.router = {"http://127.0.0.1:30000", Unavailable("gone", "start it"), 2, 4711};
    return report;
  }
  VerifyReport Verify(const VerifyRequest&) override { return {}; }
  Status Shutdown(Duration) override { return ResourceExhausted("busy", "wait"); }
  Result<control::History> GetHistory() override {
    if (!history_.has_value()) {
      return DataLoss("the journal is corrupt");
    }
    return *history_;
  }
  Status ActOnSlot(const SlotRequest& request) override {
    return FailedPrecondition(StrCat(static_cast<int>(request.action), " of ", request.slot, " within ",
                                     request.grace / seconds(1), " s of ", request.budget / seconds(1), " s"));
  }

  AgentRegistration agent_;
  std::uint32_t protocol_ = kControlProtocol;
  AgentEnd end_;
  std::optional<control::History> history_;
};

TEST(ControllerRpc, AShutdownThatIsRefusedSaysWhy) {
  FakeController controller;
  const auto server = ServeController("127.0.0.1:0", controller);
  ASSERT_TRUE(server.has_value());
  const Status status = ControllerClient::Connect((*server)->address())->Shutdown(seconds(10));
  EXPECT_EQ(status.ToString(), "RESOURCE_EXHAUSTED: busy (wait)");
}

// RX-BIND-02, S90: an upgrade of one end only.
TEST(ControllerRpc, AnotherProtocolIsRefusedByNameAtEitherEnd) {
  FakeController controller;
  const auto server = ServeController("127.0.0.1:0", controller);
  ASSERT_TRUE(server.has_value());
  const auto client = ControllerClient::Connect((*server)->address());
  AgentRegistration agent;
  agent.slot = SlotIndex(3);
  agent.address = "a:1";
  for (const std::uint32_t other : {kControlProtocol - 1, kControlProtocol + 1}) {
    agent.protocol = other;
    EXPECT_EQ(client->RegisterAgent(agent, seconds(10)).status().ToString(),
              StrCat("FAILED_PRECONDITION: the agent of engine 3 speaks control protocol ", other, ", this end ",
                     kControlProtocol, " (run one version of refit everywhere)"));
    EXPECT_TRUE(controller.agent_.address.empty());  // nobody was told of it
    const auto policy = client->RegisterPolicy({PolicyRank(2), Incarnation{{1, 1}}, "p:1", "m", other}, seconds(10));
    EXPECT_EQ(policy.status().code(), StatusCode::kFailedPrecondition);
    agent.protocol = kControlProtocol;
    controller.protocol_ = other;
    const auto told = client->RegisterAgent(agent, seconds(10));
    EXPECT_EQ(told.status().code(), StatusCode::kFailedPrecondition) << told.status().ToString();
    controller = {};
  }
}

TEST(ControllerRpc, TheStatusNamesTheRouter) {
  FakeController controller;
  const auto server = ServeController("127.0.0.1:0", controller);
  ASSERT_TRUE(server.has_value());
  const auto report = ControllerClient::Connect((*server)->address())->GetStatus(seconds(10));
  ASSERT_TRUE(report.has_value()) << report.status().ToString();
  EXPECT_EQ(report->router.url, "http://127.0.0.1:30000");
  EXPECT_EQ(report->router.status, Unavailable("gone", "start it"));
  EXPECT_EQ(report->router.entries, 2U);
  EXPECT_EQ(report->router.pid, 4711);
}

TEST(ControllerRpc, WhatPeopleWantOfASlotArrivesAsItWasAsked) {
  FakeController controller;
  const auto server = ServeController("127.0.0.1:0", controller);
  ASSERT_TRUE(server.has_value());
  const Status status = ControllerClient::Connect((*server)->address())
                            ->ActOnSlot({control::SlotAction::kRestart, SlotIndex(7), seconds(3), seconds(10)});
  EXPECT_EQ(status.ToString(), "FAILED_PRECONDITION: 3 of 7 within 3 s of 10 s");
}

TEST(ControllerRpc, TheHistoryArrivesAsItWasTold) {
  FakeController controller;
  const auto server = ServeController("127.0.0.1:0", controller);
  ASSERT_TRUE(server.has_value());
  const auto client = ControllerClient::Connect((*server)->address());
  EXPECT_EQ(client->GetHistory(seconds(10)).status(), DataLoss("the journal is corrupt"));
  control::HistoryEntry entry{.request_id = "a",
                              .source = "s",
                              .version = WeightVersion(4),
                              .attempts = 2,
                              .began_at = 5,
                              .ended_at = 6,
                              .committed = true,
                              .status = Unavailable("x", "y"),
                              .digest = Digest{{1, 2}},
                              .members = {SlotIndex(3)},
                              .excluded = {{SlotIndex(4), "died"}}};
  controller.history_ = control::History{RunId{{8, 9}}, {entry, control::HistoryEntry{.request_id = "b"}}};
  const auto history = client->GetHistory(seconds(10));
  ASSERT_TRUE(history.has_value()) << history.status().ToString();
  EXPECT_EQ(history->run, (RunId{{8, 9}}));
  ASSERT_EQ(history->entries.size(), 2U);
  const control::HistoryEntry& first = history->entries[0];
  EXPECT_EQ(first.request_id + first.source, "as");
  EXPECT_EQ(first.version, entry.version);
  EXPECT_EQ(first.attempts, 2U);
  EXPECT_EQ(first.began_at, 5U);
  EXPECT_EQ(first.ended_at, 6U);
  EXPECT_TRUE(first.committed);
  EXPECT_EQ(first.status, entry.status);
  EXPECT_EQ(first.digest, entry.digest);
  EXPECT_EQ(first.members, entry.members);
  EXPECT_EQ(first.excluded, entry.excluded);
  EXPECT_FALSE(history->entries[1].status.has_value());
}

TEST(ControllerRpc, AnAgentSaysHowItsEngineHashes) {  // settled D8
  FakeController controller;
  const auto server = ServeController("127.0.0.1:0", controller);
  ASSERT_TRUE(server.has_value());
  const auto client = ControllerClient::Connect((*server)->address());
  AgentRegistration registration{.slot = SlotIndex(3),
                                 .incarnation = Incarnation{{1, 2}},
                                 .address = "127.0.0.1:5",
                                 .engine_url = "http://127.0.0.1:6",
                                 .engine_version = "0.5.23",
                                 .family = "C",
                                 .tp_size = 2};
  for (const ParameterHashKind kind : {ParameterHashKind::kGpu, ParameterHashKind::kSha256Prefix}) {
    registration.hash_kind = kind;
    registration.attached = kind == ParameterHashKind::kGpu;
    const auto membership = client->RegisterAgent(registration, seconds(10));
    ASSERT_TRUE(membership.has_value()) << membership.status().ToString();
    EXPECT_EQ(membership->profile, "resilient");
    EXPECT_EQ(membership->launches_engines, registration.attached);
    EXPECT_EQ(controller.agent_.hash_kind, kind);
    EXPECT_EQ(controller.agent_.attached, registration.attached);
    EXPECT_EQ(controller.agent_.tp_size, 2U);
    EXPECT_EQ(controller.agent_.engine_url, registration.engine_url);
  }
  ASSERT_TRUE(
      client->AgentGone({SlotIndex(3), Incarnation{{1, 2}}, Unavailable("exit 1"), true, true}, seconds(10)).ok());
  EXPECT_EQ(controller.end_.slot, SlotIndex(3));
  EXPECT_EQ(controller.end_.incarnation, registration.incarnation);
  EXPECT_EQ(controller.end_.status.message(), "exit 1");
  EXPECT_TRUE(controller.end_.confirmed_dead);
  EXPECT_TRUE(controller.end_.died_in_update);
}

}  // namespace
}  // namespace refit::rpc
