// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A server that runs already: refitted under its own keys, or refused with the reason before it is touched.

#include <optional>

#include "refit/engine/process/child_process.h"
#include "tests/integration/fleet.h"

namespace refit::test {
namespace {

constexpr Duration kStart = std::chrono::seconds(20);

class Attach : public testing::Test {
 protected:
  void StartServer(const std::vector<std::string>& more) {
    model_ = MakeCheckpoint(folder_, "model", "tiny-llama", 1);
    engine::process::ChildOptions child{.arguments = {REFIT_ENGINE_PROGRAM, "--model", model_, "--port", "0",
                                                      "--load-format", "dummy", "--crash-hang-seconds", "0.05"},
                                        .environment = {},
                                        .log_path = folder_ / "server.log",
                                        .ready_prefix = "refit-engine: ready url="};
    child.arguments.insert(child.arguments.end(), more.begin(), more.end());
    auto started = engine::process::ChildProcess::Start(child);
    ASSERT_TRUE(started.has_value()) << started.status().ToString();
    server_.emplace(*std::move(started));
    const auto ready = server_->WaitReady(exec::Now() + kStart);
    ASSERT_TRUE(ready.has_value()) << ready.status().ToString();
    url_ = ready->substr(0, ready->find(' '));
  }
  runtime::AgentHostOptions Options(const std::string& controller) const {
    return {.slot = SlotIndex(0),
            .controller = controller,
            .kind = runtime::EngineKind::kAttach,
            .tp_size = 1,
            .engine_program = {},
            .engine_args = {},
            .url = url_,
            .run_directory = folder_ / "agent",
            .load_bytes = 16 * kKiB,
            .call_deadline = std::chrono::seconds(5),
            .update_deadline = std::chrono::seconds(5)};
  }
  // What an agent says that cannot take the server. There is no controller: it is not needed for that.
  Status Refusal(const std::function<void(runtime::AgentHostOptions&)>& change = [](auto&) {}) const {
    runtime::AgentHostOptions options = Options("127.0.0.1:1");
    options.register_deadline = std::chrono::milliseconds(200);
    change(options);
    return runtime::AgentHost::Start(options).status();
  }

  TempFolder folder_;
  std::string model_;
  std::string url_;
  std::optional<engine::process::ChildProcess> server_;
};

void ExpectMentions(const Status& status, std::initializer_list<std::string_view> words) {
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString().find('\n'), std::string::npos) << status.ToString();
  for (const std::string_view word : words) {
    EXPECT_NE(status.ToString().find(word), std::string::npos) << word << " is not in: " << status.ToString();
  }
}

// ---- refused at bind, by name

TEST_F(Attach, AServerThatIsTooOldIsRefused) {
  StartServer({"--served-version", "0.5.8"});
  ExpectMentions(Refusal(), {"engine 0", url_, "SGLang 0.5.8 is too old", "0.5.9"});
}

TEST_F(Attach, AServerThatWantsAKeyAndGetsNoneIsRefused) {
  StartServer({"--api-key", "users"});
  ExpectMentions(Refusal(), {"engine 0", "401", "Unauthorized", "--api-key-file"});
  StartServer({"--admin-api-key", "admin"});
  ExpectMentions(Refusal(), {"engine 0", "/update_weights_from_tensor answered 401", "--admin-api-key-file"});
  ExpectMentions(Refusal([](auto& options) { options.admin_key = "wrong"; }), {"401"});
}

TEST_F(Attach, AnotherTpSizeIsRefused) {
  StartServer({"--tp", "3"});
  ExpectMentions(Refusal(), {"tp_size 3", "the configuration says 1"});
}

// RC-CFG-06, settled D6: known at bind only, since the family is the server's.
TEST_F(Attach, ARetractPauseOnFamilyAIsRefused) {
  StartServer({"--family", "a"});
  ExpectMentions(Refusal([](auto& options) { options.pause_mode = sync::PauseMode::kRetract; }),
                 {"engine 0", "retract", "family a", "abort"});
}

// Settled C8: it cannot say whether somebody left a session open.
TEST_F(Attach, AServerOfFamilyBIsRefused) {
  StartServer({"--family", "b"});
  ExpectMentions(Refusal(), {"engine 0", "family b", "restart the engine"});
}

// Settled D5: a load into released memory kills it, and it does not say what is released.
TEST_F(Attach, AServerWhoseMemoryMayBeReleasedIsRefused) {
  StartServer({"--enable-memory-saver"});
  ExpectMentions(Refusal(), {"engine 0", "enable_memory_saver", "restart it"});
}

TEST_F(Attach, WhereNobodyListensTheErrorNamesTheAddress) {
  url_ = "http://127.0.0.1:1";
  ExpectMentions(Refusal(), {"engine 0", url_});
}

// ---- refitted

class AttachedFamily : public Attach, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, AttachedFamily, testing::Values("a", "c"));

// RC-RPC-01: on family A the 404 of `begin` hides behind a 401 where a server has both keys.
TEST_P(AttachedFamily, AServerWithBothKeysIsRefittedUnderThem) {
  StartServer({"--family", GetParam(), "--api-key", "users", "--admin-api-key", "admin"});
  Fleet fleet({.shape = "tiny-llama", .policies = 1, .engines = 1, .tp_size = 1});
  fleet.StopAgent(0);
  runtime::AgentHostOptions options = Options(fleet.controller_address());
  options.api_key = "users";
  options.admin_key = "admin";
  const auto agent = runtime::AgentHost::Start(options);
  ASSERT_TRUE(agent.has_value()) << agent.status().ToString();
  for (int refit = 0; refit < 2; ++refit) {
    const rpc::SyncReport report = fleet.Sync();
    ASSERT_TRUE(report.status.ok()) << Describe(report);
    EXPECT_TRUE(fleet.Verify().verified);
  }
}

// RC-RPC-06, settled C17: not ours to kill or restart, so it is called no more.
TEST_F(Attach, AServerThatDiesBetweenTwoLoadsIsUnknownAndRetired) {
  StartServer({"--family", "c", "--fault", "exit:update:3"});
  Fleet fleet({.shape = "tiny-llama", .policies = 1, .engines = 1, .tp_size = 1});
  fleet.StopAgent(0);
  const auto agent = runtime::AgentHost::Start(Options(fleet.controller_address()));
  ASSERT_TRUE(agent.has_value()) << agent.status().ToString();
  const rpc::SyncReport report = fleet.Sync();
  EXPECT_FALSE(report.status.ok());
  ASSERT_EQ(report.engines.size(), 1U);
  EXPECT_EQ(report.engines[0].residue.kind, sync::ResidueKind::kUnknown) << Describe(report);
  EXPECT_NE(Describe(report).find("load 3"), std::string::npos) << Describe(report);
}

}  // namespace
}  // namespace refit::test
