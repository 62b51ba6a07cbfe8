// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/engine_process.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <future>

#include "refit/exec/clock.h"
#include "tests/support/plain_process.h"
#include "tests/support/temp_folder.h"

namespace refit::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The line of refit-engine that says it is ready, with the port that it was given.
constexpr char kReady[] = "echo refit-engine: ready url=http://127.0.0.1:$4 pid=$$\n";

class EngineProcessTest : public testing::Test {
 protected:
  EngineProcessTest() { Write(std::string(kReady) + "sleep 60\n"); }
  // A script in the place of refit-engine: --tp N --port P --admin-api-key-file F.
  void Write(const std::string& script) {
    const std::string path = folder_ / "engine";
    std::ofstream(path) << "#!/bin/sh\n" << script;
    ASSERT_EQ(chmod(path.c_str(), 0700), 0);
    options_.slot = SlotIndex(0);
    options_.engine_program = path;
    options_.run_directory = folder_ / "";
    options_.launch_deadline = seconds(10);
  }
  std::unique_ptr<EngineProcess> Make(std::uint32_t number) {
    return std::make_unique<EngineProcess>(options_, number, folder_ / "ports");
  }

  test::TempFolder folder_;
  AgentHostOptions options_;
};

// RC-KILL-07: the key also fences calls that are meant for another life. RC-REC-09: nor is its port used again.
TEST_F(EngineProcessTest, EveryLaunchHasAKeyAndAPortOfItsOwn) {
  const auto first = Make(1);
  const auto second = Make(2);
  const auto one = first->Launch({});
  ASSERT_TRUE(one.has_value()) << one.status().ToString();
  const auto two = second->Launch({});
  ASSERT_TRUE(two.has_value()) << two.status().ToString();
  EXPECT_NE(one->url, two->url);
  EXPECT_NE(one->admin_key, two->admin_key);
  EXPECT_GE(one->admin_key.size(), 32U);
  struct stat file{};
  ASSERT_EQ(stat((folder_ / "engine-0-1.key").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);  // no command line, and nobody else's to read
}

// RC-REC-09: a port that somebody else took meanwhile is a failed launch, not a hang.
TEST_F(EngineProcessTest, AServerThatCannotListenIsAFailedLaunch) {
  Write("echo cannot listen on port $4; exit 1\n");
  const auto up = Make(1)->Launch({});
  ASSERT_FALSE(up.has_value());
  EXPECT_NE(up.status().message().find("cannot listen on port"), std::string::npos) << up.status().ToString();
}

// RC-KILL-02: it works on one whose launch never got as far as a server.
TEST_F(EngineProcessTest, AKillEndsALaunchThatIsUnderWay) {
  Write("sleep 60\n");
  const auto process = Make(1);
  auto launching = std::async(std::launch::async, [&process] { return process->Launch({}); });
  ASSERT_TRUE(exec::WaitUntil([&process] { return process->pid() > 0; }, exec::Now() + seconds(10)));
  EXPECT_TRUE(process->Kill(exec::Now() + seconds(10)));
  EXPECT_EQ(launching.get().status().code(), StatusCode::kCancelled);
  const auto late = Make(2);
  EXPECT_TRUE(late->Kill(exec::Now()));  // nothing was started, and nothing will be
  EXPECT_EQ(late->Launch({}).status().code(), StatusCode::kCancelled);
}

// RC-KILL-01: bounded, also where it is not listened to.
TEST_F(EngineProcessTest, AShutDownThatIsIgnoredIsBounded) {
  Write(std::string("trap '' TERM\n") + kReady + "while :; do sleep 1; done\n");
  const auto process = Make(1);
  ASSERT_TRUE(process->Launch({}).has_value());
  const Instant asked = exec::Now();
  EXPECT_TRUE(process->ShutDown(asked + milliseconds(100)));
  EXPECT_GE(exec::Now() - asked, milliseconds(100));
  EXPECT_TRUE(test::Gone(process->pid()));
}

}  // namespace
}  // namespace refit::runtime
