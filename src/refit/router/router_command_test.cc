// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/router/router_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace refit::router {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

TEST(RouterCommand, StartsTheRouterOnItsOwnPortsWithAShortWaitForEngines) {
  EXPECT_THAT(MakeArguments({.port = 31000, .metrics_port = 31001}),
              ElementsAre("python3", "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", "31000",
                          "--prometheus-host", "127.0.0.1", "--prometheus-port", "31001",
                          "--worker-startup-timeout-secs", "5", "--worker-startup-check-interval", "1",
                          "--health-check-interval-secs", "1", "--health-check-timeout-secs", "1",
                          "--health-failure-threshold", "2", "--health-success-threshold", "1", "--log-level", "warn"));
}

TEST(RouterCommand, PassesOnWhatTheJobSays) {
  EXPECT_THAT(MakeArguments({.python = "/venv/bin/python",
                             .policy = "round_robin",
                             .request_timeout_seconds = 30,
                             .worker_startup_timeout = std::chrono::milliseconds(1500)}),
              IsSupersetOf({"/venv/bin/python", "--policy", "round_robin", "--request-timeout-secs", "30", "2"}));
}

// Arguments can be read by every user of the host.
TEST(RouterCommand, NamesTheFileOfItsKeyAndNotTheKey) {
  const auto arguments = MakeArguments({.api_key_file = "/run/key"});
  EXPECT_EQ(arguments[1], "-c");
  EXPECT_THAT(arguments[2], HasSubstr("sglang_router.launch_router"));
  EXPECT_EQ(arguments[3], "/run/key");
  EXPECT_THAT(arguments, Not(Contains("--api-key")));
}

}  // namespace
}  // namespace refit::router
