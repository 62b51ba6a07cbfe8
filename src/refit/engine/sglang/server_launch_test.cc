// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/server_launch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "refit/engine/sglang/sglang_engine.h"
#include "refit/exec/clock.h"
#include "refit/http/server_double.h"

namespace refit::engine::sglang {
namespace {

ServerLaunch Launch() {
  return {.python = "/opt/env/bin/python",
          .arguments = {"--model-path", "m", "--device", "cpu"},
          .tp_size = 2,
          .port = 12345,
          .admin_key = "abc123",
          .key_file = "run/key.yaml"};
}

bool Has(const std::vector<std::string>& words, const std::string& name, const std::string& value) {
  const auto found = std::ranges::find(words, name);
  return found != words.end() && found + 1 != words.end() && *(found + 1) == value;
}

TEST(ServerLaunch, TheCommandHasTheUsersArgumentsAndOursButNotTheKey) {
  const ServerCommand command = MakeServerCommand(Launch());
  const std::vector<std::string> start(command.arguments.begin(), command.arguments.begin() + 7);
  EXPECT_EQ(start, (std::vector<std::string>{"/opt/env/bin/python", "-m", "sglang.launch_server", "--model-path", "m",
                                             "--device", "cpu"}));
  EXPECT_TRUE(Has(command.arguments, "--host", "127.0.0.1"));
  EXPECT_TRUE(Has(command.arguments, "--port", "12345"));
  EXPECT_TRUE(Has(command.arguments, "--tp-size", "2"));
  EXPECT_TRUE(Has(command.arguments, "--config", "run/key.yaml"));
  EXPECT_EQ(std::ranges::count(command.arguments, "abc123"), 0);
  EXPECT_EQ(KeyFileText("123e45", ""), "admin-api-key: \"123e45\"\n");
  EXPECT_EQ(KeyFileText("123e45", "77"), "admin-api-key: \"123e45\"\napi-key: \"77\"\n");
}

// A server that crashed must not hang for 5 s and more (docs/spec/sglang-wire.md §1.0).
TEST(ServerLaunch, BothCrashVariablesAreSet) {
  EXPECT_EQ(
      MakeServerCommand(Launch()).environment,
      (std::vector<std::string>{"SGLANG_PYSPY_DUMP_BEFORE_CRASH=false", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH=false"}));
}

TEST(ServerLaunch, BesideAConfigFileOfTheUsersTheKeyIsAnArgument) {
  ServerLaunch launch = Launch();
  launch.arguments = {"--config", "mine.yaml"};
  const ServerCommand command = MakeServerCommand(launch);
  EXPECT_TRUE(Has(command.arguments, "--config", "mine.yaml"));
  EXPECT_EQ(std::ranges::count(command.arguments, "--config"), 1);
  EXPECT_TRUE(Has(command.arguments, "--admin-api-key", "abc123"));
  EXPECT_EQ(std::ranges::count(command.arguments, "--api-key"), 0);
  launch.api_key = "users";
  EXPECT_TRUE(Has(MakeServerCommand(launch).arguments, "--api-key", "users"));
}

// RC-CFG-16: the server's own parser is its list of arguments; what it refuses is named.
TEST(ServerLaunch, AnArgumentThatThisVersionDoesNotKnowIsASetupErrorThatNamesIt) {
  const Status unknown =
      ExplainEnd("engine 0", "exit 2",
                 "usage: launch_server.py [-h] ... launch_server.py: error: unrecognized arguments: --old 3");
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.message(), "engine 0 does not take its arguments: unrecognized arguments: --old 3");
  EXPECT_NE(unknown.remedy().find("--help"), std::string::npos);
  const Status value =
      ExplainEnd("engine 0", "exit 2", "sglang serve: error: argument --dtype: invalid choice: 'int3'");
  EXPECT_NE(value.message().find("invalid choice: 'int3'"), std::string::npos);
}

TEST(ServerLaunch, APythonWithoutSglangIsNamedAndAnyOtherEndShowsTheLog) {
  const Status without =
      ExplainEnd("engine 0", "exit 1",
                 "/usr/bin/python3: Error while finding module specification for 'sglang.launch_server' "
                 "(ModuleNotFoundError: No module named 'sglang')");
  EXPECT_EQ(without.code(), StatusCode::kNotFound);
  EXPECT_NE(without.remedy().find("--python"), std::string::npos);
  const Status other = ExplainEnd("engine 0", "exit 1", "RuntimeError: error: no memory");
  EXPECT_EQ(other.code(), StatusCode::kUnavailable);
  EXPECT_NE(other.message().find("exit 1"), std::string::npos);
  EXPECT_NE(other.message().find("no memory"), std::string::npos);
}

TEST(ServerLaunch, APythonWithoutAFolderIsLookedUp) {
  ServerLaunch launch = Launch();
  launch.python = "python3";
  const ServerCommand command = MakeServerCommand(launch);
  EXPECT_EQ(command.arguments[0], "/usr/bin/env");
  EXPECT_EQ(command.arguments[1], "python3");
}

TEST(ServerLaunch, WhatTheAgentGivesIsRefusedInBothSpellings) {
  EXPECT_TRUE(CheckServerArguments({"--model-path", "m", "--tool-call-parser", "x", "--port-range", "y"}).ok());
  for (const std::string name :
       {"--port", "--host", "--tp-size", "--tp", "--tensor-parallel-size", "--admin-api-key", "--api-key"}) {
    for (const std::string& argument : {name, name + "=1"}) {
      const Status refused = CheckServerArguments({"--model-path", "m", argument, "1"});
      EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << argument;
      EXPECT_NE(refused.message().find(name + " "), std::string::npos) << refused.message();
      EXPECT_FALSE(refused.remedy().empty());
    }
  }
}

class AwaitServerTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> Connect() {
    return *ConnectSglang({.url = server_.url(), .admin_key = {}, .pause_mode = {}});
  }
  http::ServerDouble server_;
};

TEST_F(AwaitServerTest, AServerThatAnswersIsUp) {
  server_.Answer("*", http::Reply(400, R"({"object":"error","message":"a field is missing"})"));
  server_.Answer("/server_info", http::Reply(200, R"({"version":"0.5.23","tp_size":1})"));
  server_.Answer("/model_info", http::Reply(200, R"({"model_path":"m"})"));
  const auto engine = Connect();
  EXPECT_TRUE(AwaitServer(*engine, "engine 0", [] { return false; }, exec::Now() + std::chrono::seconds(10)).ok());
}

TEST_F(AwaitServerTest, AProcessThatEndsIsNotedAtOnce) {
  server_.Answer("*", http::Reply(503, ""));
  const auto engine = Connect();
  int asked = 0;
  const Status status =
      AwaitServer(*engine, "engine 0", [&asked] { return ++asked > 2; }, exec::Now() + std::chrono::seconds(60));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST_F(AwaitServerTest, AServerThatNeverAnswersIsGivenUpAtTheDeadline) {
  server_.Answer("*", http::Reply(503, ""));
  const auto engine = Connect();
  const Instant start = exec::Now();
  const Status status = AwaitServer(*engine, "engine 0", [] { return false; }, start + std::chrono::milliseconds(500));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(exec::Now() - start, std::chrono::seconds(5));
}

TEST_F(AwaitServerTest, AServerThatWantsAnotherKeyIsRefusedAtOnce) {
  server_.Answer("*", http::Reply(401, R"({"error":"Unauthorized"})"));
  const auto engine = Connect();
  const Status status = AwaitServer(*engine, "engine 0", [] { return false; }, exec::Now() + std::chrono::seconds(60));
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
}

TEST_F(AwaitServerTest, AServerThatIsTooOldIsRefusedAtOnce) {
  server_.Answer("/server_info", http::Reply(200, R"({"version":"0.5.5","tp_size":1})"));
  server_.Answer("/model_info", http::Reply(200, R"({"model_path":"m"})"));
  const auto engine = Connect();
  const Status status = AwaitServer(*engine, "engine 0", [] { return false; }, exec::Now() + std::chrono::seconds(60));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace refit::engine::sglang
