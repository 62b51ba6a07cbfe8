// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/kill_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace refit::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Describe {
  std::string operator()(const Deregister&) const { return "deregister"; }
  std::string operator()(const ShutDown& e) const { return e.deadline == seconds(2) ? "shut down" : "shut down?"; }
  std::string operator()(const HardKill&) const { return "kill"; }
  std::string operator()(const KillPathEnded& e) const { return e.confirmed ? "dead" : "zombie"; }
};

class KillPathTest : public ::testing::Test {
 protected:
  std::vector<std::string> Take() {
    std::vector<std::string> text;
    for (const KillPathEffect& effect : out_) {
      text.push_back(std::visit(Describe{}, effect));
    }
    out_.clear();
    return text;
  }
  std::vector<std::string> Deadline() {
    if (path_.next_deadline() == kNever) {
      return {"waits for ever"};
    }
    now_ = path_.next_deadline();
    path_.HandleDeadline(now_, out_);
    return Take();
  }
  std::vector<std::string> Start() {
    path_.Start(now_, out_);
    return Take();
  }
  std::vector<std::string> Deregistered() {
    path_.OnDeregistered(now_, out_);
    return Take();
  }
  std::vector<std::string> ShutDownEnded() {
    path_.OnShutDown(now_, out_);
    return Take();
  }
  enum class Kill { kConfirmed, kFailed };
  std::vector<std::string> Killed(Kill kill) {
    path_.OnKilled(kill == Kill::kConfirmed, out_);
    return Take();
  }

  Instant now_{};
  KillPath path_{seconds(2)};
  KillPathEffects out_;
};

// RC-KILL-01, -02: out of the router, gracefully, and then the hard kill, also after a shutdown that succeeded: it is
// what reaches grandchildren. There may be no process at all; nothing here needs one.
TEST_F(KillPathTest, TheHardKillAlwaysFollowsTheShutdown) {
  EXPECT_THAT(Start(), ElementsAre("deregister"));
  EXPECT_THAT(Start(), IsEmpty()) << "once";
  EXPECT_THAT(Deregistered(), ElementsAre("shut down"));
  EXPECT_THAT(ShutDownEnded(), ElementsAre("kill"));
  EXPECT_THAT(Killed(Kill::kConfirmed), ElementsAre("dead"));
  EXPECT_EQ(path_.phase(), KillPhase::kEnded);
  EXPECT_EQ(path_.next_deadline(), kNever);
}

// RC-KILL-01, RC-REC-04, S05: the wedged case is why the hard kill exists.
TEST_F(KillPathTest, AShutdownThatHangsIsFollowedByTheHardKill) {
  Start();
  Deregistered();
  EXPECT_EQ(path_.next_deadline(), now_ + seconds(2));
  path_.HandleDeadline(now_ + seconds(2) - Duration(1), out_);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(Deadline(), ElementsAre("kill"));
  EXPECT_THAT(ShutDownEnded(), IsEmpty()) << "late";
  EXPECT_THAT(Killed(Kill::kConfirmed), ElementsAre("dead"));
}

// RC-KILL-03, S47
TEST_F(KillPathTest, ARouterThatHangsHoldsUpNothing) {
  Start();
  EXPECT_THAT(Deadline(), ElementsAre("shut down"));
  EXPECT_THAT(Deregistered(), IsEmpty()) << "late";
  EXPECT_THAT(ShutDownEnded(), ElementsAre("kill"));
}

// RC-KILL-05, S06: what cannot be confirmed is no death.
TEST_F(KillPathTest, AKillThatIsNotConfirmedLeavesAZombie) {
  Start();
  Deregistered();
  ShutDownEnded();
  EXPECT_THAT(Killed(Kill::kFailed), ElementsAre("zombie"));
}

TEST_F(KillPathTest, AKillThatIsNotAnsweredLeavesAZombie) {
  Start();
  Deregistered();
  ShutDownEnded();
  EXPECT_EQ(path_.next_deadline(), now_ + seconds(2));
  EXPECT_THAT(Deadline(), ElementsAre("zombie"));
  EXPECT_THAT(Killed(Kill::kConfirmed), IsEmpty()) << "late";
}

// RC-KILL-05: reaped by its own supervisor, say.
TEST_F(KillPathTest, DeathConfirmedByOtherMeansEndsItAtAnyTime) {
  path_.OnDeath(out_);
  EXPECT_THAT(Take(), IsEmpty()) << "nothing has begun";
  Start();
  path_.OnDeath(out_);
  EXPECT_THAT(Take(), ElementsAre("dead"));
  path_.OnDeath(out_);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(Deregistered(), IsEmpty());
  path_.HandleDeadline(now_ + seconds(100), out_);
  EXPECT_THAT(Take(), IsEmpty());
}

TEST(KillPath, PhasesHaveNames) {
  EXPECT_EQ(ToString(KillPhase::kIdle), "idle");
  EXPECT_EQ(ToString(KillPhase::kDeregistering), "deregistering");
  EXPECT_EQ(ToString(KillPhase::kShuttingDown), "shutting down");
  EXPECT_EQ(ToString(KillPhase::kKilling), "killing");
  EXPECT_EQ(ToString(KillPhase::kEnded), "ended");
}

}  // namespace
}  // namespace refit::fleet
