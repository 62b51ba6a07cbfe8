// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The errands of controllers, where no engine has been launched yet.

#include "refit/runtime/engine_owner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "refit/exec/clock.h"

namespace refit::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr RunId kRun{{1, 2}};

class EngineOwnerTest : public testing::Test {
 protected:
  EngineOwnerTest() { owner_.Join(kRun, Term(3)); }
  rpc::ErrandReply Run(rpc::ErrandKind kind, Term term, RunId run = kRun) {
    return owner_.Run({.run = run, .term = term, .kind = kind, .incarnation = {}, .budget = seconds(10)});
  }
  EngineOwner owner_{SlotIndex(0)};
};

// RX-LEAD-02: whoever has heard of a later controller does nothing for an earlier one, and says what it has heard.
TEST_F(EngineOwnerTest, AnErrandOfAnOlderControllerIsRefused) {  // S62
  EXPECT_TRUE(Run(rpc::ErrandKind::kKill, Term(3)).status.ok());
  EXPECT_TRUE(Run(rpc::ErrandKind::kKill, Term(4)).status.ok());
  const rpc::ErrandReply late = Run(rpc::ErrandKind::kKill, Term(3));
  EXPECT_EQ(late.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(late.highest_term, Term(4));
  EXPECT_FALSE(late.gone);
  owner_.Heard(Term(6));  // from a command
  EXPECT_FALSE(Run(rpc::ErrandKind::kKill, Term(5)).status.ok());
  EXPECT_FALSE(Run(rpc::ErrandKind::kLaunch, Term(5)).status.ok());
  EXPECT_FALSE(owner_.AwaitOrder(exec::Now()));
}

TEST_F(EngineOwnerTest, AnErrandOfAnotherRunIsRefused) {
  EXPECT_EQ(Run(rpc::ErrandKind::kKill, Term(9), RunId{{1, 3}}).status.code(), StatusCode::kFailedPrecondition);
  owner_.Join(RunId{{1, 3}}, Term(1));  // a run that begins counts anew
  EXPECT_TRUE(Run(rpc::ErrandKind::kKill, Term(1), RunId{{1, 3}}).status.ok());
}

// RC-KILL-02: it works where nothing was ever launched.
TEST_F(EngineOwnerTest, WhereNothingWasLaunchedShutDownAndKillAreDoneAtOnce) {
  EXPECT_TRUE(Run(rpc::ErrandKind::kShutDown, Term(3)).gone);
  EXPECT_TRUE(Run(rpc::ErrandKind::kKill, Term(3)).gone);
  EXPECT_EQ(Run(rpc::ErrandKind::kProbe, Term(3)).status.code(), StatusCode::kUnavailable);
}

TEST_F(EngineOwnerTest, WhoeverAsksForALaunchHearsHowItEnded) {
  auto asking = std::async(std::launch::async, [this] { return Run(rpc::ErrandKind::kLaunch, Term(3)); });
  ASSERT_TRUE(owner_.AwaitOrder(exec::Now() + seconds(10)));
  ASSERT_TRUE(owner_.BeginLaunch(nullptr).ok());
  owner_.EndLaunch(Unavailable("exit 1"));
  EXPECT_EQ(asking.get().status.message(), "exit 1");
  EXPECT_FALSE(owner_.AwaitOrder(exec::Now()));
}

TEST_F(EngineOwnerTest, AKillCallsOffTheLaunchThatWaits) {
  auto asking = std::async(std::launch::async, [this] { return Run(rpc::ErrandKind::kLaunch, Term(3)); });
  ASSERT_TRUE(owner_.AwaitOrder(exec::Now() + seconds(10)));
  EXPECT_TRUE(Run(rpc::ErrandKind::kKill, Term(3)).gone);
  EXPECT_EQ(asking.get().status.code(), StatusCode::kAborted);
  EXPECT_FALSE(owner_.AwaitOrder(exec::Now() + milliseconds(1)));
}

// RC-KILL-07: somebody else's engine is never launched.
TEST_F(EngineOwnerTest, OneThatIsRetiredLaunchesNothing) {
  owner_.Retire(FailedPrecondition("attached"));
  EXPECT_EQ(Run(rpc::ErrandKind::kLaunch, Term(3)).status.message(), "attached");
}

// The controller may hear of an agent before the agent hears from it.
TEST(EngineOwner, AnErrandThatComesTooEarlyWaitsUntilTheAgentHasJoined) {
  EngineOwner owner{SlotIndex(0)};
  auto asking = std::async(std::launch::async, [&owner] {
    return owner.Run(
        {.run = kRun, .term = Term(3), .kind = rpc::ErrandKind::kKill, .incarnation = {}, .budget = seconds(10)});
  });
  owner.Join(kRun, Term(3));
  EXPECT_TRUE(asking.get().status.ok());
}

TEST_F(EngineOwnerTest, WhoeverWaitsHearsThatTheAgentIsStopped) {
  auto asking = std::async(std::launch::async, [this] { return Run(rpc::ErrandKind::kLaunch, Term(3)); });
  ASSERT_TRUE(owner_.AwaitOrder(exec::Now() + seconds(10)));
  owner_.Stop();
  EXPECT_EQ(asking.get().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(owner_.BeginLaunch(nullptr).code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace refit::runtime
