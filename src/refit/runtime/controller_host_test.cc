// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a controller process does beyond its machine.

#include "refit/runtime/controller_host.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "refit/control/controller.h"
#include "refit/exec/clock.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/rpc/policy_rpc.h"
#include "refit/runtime/controller_finder.h"
#include "refit/store/store.h"
#include "tests/support/temp_folder.h"

namespace refit::runtime {
namespace {

using std::chrono::seconds;

// Has heard from a controller of a later term, and says so with every answer.
class PolicyOfALaterTerm final : public rpc::PolicyHandler {
 public:
  sync::PolicyReply Execute(const sync::PolicyCommand& command) override {
    return {.stamp = command.stamp,
            .kind = sync::ReplyKind::kStale,
            .status = Aborted("an older term"),
            .manifest = nullptr,
            .digest = {},
            .totals = {},
            .highest_term = Term(9)};
  }
  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string&, weights::Hashing) override {
    return NotFound("not here");
  }
  void Serve(const rpc::OpenStream&, rpc::SenderStream&) override {}
};

class NoEngine final : public rpc::AgentHandler {
 public:
  sync::AgentReply Execute(const sync::AgentCommand& command) override {
    sync::AgentReply reply;
    reply.stamp = command.stamp;
    reply.kind = sync::ReplyKind::kFailed;
    reply.status = Unavailable("not here");
    return reply;
  }
  rpc::ErrandReply Run(const rpc::EngineErrand&) override { return {}; }
  Result<std::vector<weights::RankHashes>> Checksums(Incarnation) override { return NotFound("not here"); }
  ByteCount bytes_delivered() const override { return 0; }
};

// RX-LEAD-04: a controller that another one has taken over from ends, with the exit code that says so.
TEST(ControllerHost, OneThatWasTakenOverFromStopsWithItsExitCode) {
  std::atomic<int> exit_code = 0;
  const auto host = ControllerHost::Start({.slots = {SlotIndex(0)},
                                           .policy_ranks = {PolicyRank(0)},
                                           .on_stop = [&exit_code](int code) { exit_code = code; }});
  ASSERT_TRUE(host.has_value()) << host.status().ToString();
  PolicyOfALaterTerm policy;
  NoEngine engine;
  const auto policy_server = rpc::ServePolicy("127.0.0.1:0", policy);
  const auto agent_server = rpc::ServeAgent("127.0.0.1:0", engine);
  const auto client = rpc::ControllerClient::Connect((*host)->address());
  ASSERT_TRUE(
      client->RegisterPolicy({PolicyRank(0), Incarnation{{1, 1}}, (*policy_server)->address(), "m"}, seconds(10))
          .has_value());
  ASSERT_TRUE(client
                  ->RegisterAgent({.slot = SlotIndex(0),
                                   .incarnation = Incarnation{{2, 2}},
                                   .address = (*agent_server)->address(),
                                   .engine_url = "http://127.0.0.1:1",
                                   .engine_version = "0",
                                   .family = "c",
                                   .tp_size = 1},
                                  seconds(10))
                  .has_value());
  const auto report = client->Sync({"request", "", seconds(10)}, [](const rpc::SyncProgress&) {});
  ASSERT_TRUE(exec::WaitUntil([&exit_code] { return exit_code != 0; }, exec::Now() + seconds(10)));
  EXPECT_EQ(exit_code, control::kExitSuperseded);
  EXPECT_FALSE(report.has_value() && report->status.ok());
}

rpc::AgentRegistration AnAgent(const std::string& address) {
  return {.slot = SlotIndex(0),
          .incarnation = Incarnation{{2, 2}},
          .address = address,
          .engine_url = "http://127.0.0.1:1",
          .engine_version = "0",
          .family = "c",
          .tp_size = 1};
}

// RX-LEAD-01, RX-JRNL-04: the run goes on, under the next term, which everybody is told.
TEST(ControllerHost, OneThatIsStartedAgainGoesOnWithTheRunUnderTheNextTerm) {
  const test::TempFolder folder;
  NoEngine engine;
  const auto agent_server = rpc::ServeAgent("127.0.0.1:0", engine);
  std::vector<rpc::Membership> memberships;
  for (int life = 0; life < 2; ++life) {
    const auto host = ControllerHost::Start({.state_directory = folder / "state", .slots = {SlotIndex(0)}});
    ASSERT_TRUE(host.has_value()) << host.status().ToString();
    ASSERT_TRUE(exec::WaitUntil(
        [&] {
          const auto place = FindController({.address = {}, .state_directory = folder / "state"});
          return place.has_value() && place->address == (*host)->address();
        },
        exec::Now() + seconds(10)));
    const auto client = rpc::ControllerClient::Connect((*host)->address());
    const auto membership = client->RegisterAgent(AnAgent((*agent_server)->address()), seconds(10));
    ASSERT_TRUE(membership.has_value()) << membership.status().ToString();
    memberships.push_back(*membership);
    EXPECT_EQ(client->GetStatus(seconds(10))->term, membership->term);
  }
  EXPECT_EQ(memberships[0].term, Term(1));
  EXPECT_EQ(memberships[1].term, Term(2));
  EXPECT_EQ(memberships[0].run, memberships[1].run);
  EXPECT_EQ(FindController({.address = {}, .state_directory = folder / "state"}).status().code(),
            StatusCode::kUnavailable)
      << "whoever ended by itself is not to be found";
}

// RX-LEAD-02, -04: the journal is one of the resources that refuse a term which is over.
TEST(ControllerHost, OneWhoseTermWasTakenStopsAtItsNextRecord) {
  const test::TempFolder folder;
  std::atomic<int> exit_code = 0;
  NoEngine engine;
  const auto agent_server = rpc::ServeAgent("127.0.0.1:0", engine);
  const auto host = ControllerHost::Start({.state_directory = folder / "state",
                                           .slots = {SlotIndex(0)},
                                           .policy_ranks = {PolicyRank(0)},
                                           .on_stop = [&exit_code](int code) { exit_code = code; }});
  ASSERT_TRUE(host.has_value()) << host.status().ToString();
  {
    const auto store = store::Store::OpenExisting(folder / "state");
    ASSERT_TRUE((*store)->TakeTerm(Term(1), {.pid = 1}, RunId{}).has_value());
  }
  const auto client = rpc::ControllerClient::Connect((*host)->address());
  static_cast<void>(client->RegisterAgent(AnAgent((*agent_server)->address()), seconds(10)));
  static_cast<void>(client->RegisterPolicy({PolicyRank(0), Incarnation{{1, 1}}, "127.0.0.1:1", "m"}, seconds(10)));
  static_cast<void>(client->Sync({"request", "", seconds(10)}, [](const rpc::SyncProgress&) {}));
  ASSERT_TRUE(exec::WaitUntil([&exit_code] { return exit_code != 0; }, exec::Now() + seconds(10)));
  EXPECT_EQ(exit_code, control::kExitSuperseded);
}

}  // namespace
}  // namespace refit::runtime
