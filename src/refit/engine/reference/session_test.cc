// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// RC-TEST-02: the engine enforces its contract, as each family does.

#include "refit/engine/reference/session.h"

#include <gtest/gtest.h>

namespace refit::engine::reference {
namespace {

using sync::SessionFamily;
constexpr Occupancy kIdle{};
constexpr Occupancy kRunning{.running = 1, .waiting = 0};
constexpr Occupancy kWaiting{.running = 0, .waiting = 1};

TEST(SessionTest, FamilyAUpdatesWithoutASession) {
  EXPECT_EQ(Session(SessionFamily::kA).CheckUpdate().kind, ReplyKind::kOk);
}

TEST(SessionTest, FamilyBDiesOfEveryWrongSessionCall) {
  Session session(SessionFamily::kB);
  EXPECT_EQ(session.CheckUpdate().kind, ReplyKind::kDeath);
  EXPECT_EQ(session.End().kind, ReplyKind::kDeath);
  EXPECT_EQ(session.Begin().kind, ReplyKind::kOk);
  EXPECT_EQ(session.CheckUpdate().kind, ReplyKind::kOk);
  EXPECT_EQ(session.Begin().kind, ReplyKind::kDeath);
  EXPECT_EQ(session.End().kind, ReplyKind::kOk);
}

TEST(SessionTest, FamilyCRefusesThemInItsOwnWords) {
  Session session(SessionFamily::kC);
  EXPECT_EQ(session.CheckUpdate(),
            (Reply{ReplyKind::kRefused,
                   "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()"}));
  EXPECT_EQ(session.End(),
            (Reply{ReplyKind::kRefused, "no weight-update session is open; call begin_weight_update() first"}));
  EXPECT_EQ(session.Begin().kind, ReplyKind::kOk);
  EXPECT_EQ(session.Begin(),
            (Reply{ReplyKind::kRefused, "a weight-update session is already open; call end_weight_update() first"}));
  EXPECT_TRUE(session.open());
  EXPECT_EQ(session.End(), (Reply{ReplyKind::kOk, "Success"}));  // without any load, too
}

TEST(SessionTest, FlushIsRefusedWhileRequestsPend) {
  using Kind = Session::FlushKind;
  for (const SessionFamily family : {SessionFamily::kA, SessionFamily::kB, SessionFamily::kC}) {
    Session session(family);
    EXPECT_TRUE(session.CanFlush(kIdle, Kind::kAtOnce));
    EXPECT_FALSE(session.CanFlush(kRunning, Kind::kAtOnce));
    EXPECT_FALSE(session.CanFlush(kWaiting, Kind::kAtOnce));
    session.Pause(PauseMode::kAbort);
    EXPECT_FALSE(session.CanFlush(kWaiting, Kind::kAtOnce));
    session.Pause(PauseMode::kRetract);
    // After a retract pause family A never flushes; the others do, but only at once.
    EXPECT_EQ(session.CanFlush(kWaiting, Kind::kAtOnce), family != SessionFamily::kA);
    EXPECT_FALSE(session.CanFlush(kWaiting, Kind::kWaiting));
    EXPECT_FALSE(session.CanFlush(kRunning, Kind::kAtOnce));  // in_place keeps them running
    session.Continue();
    EXPECT_FALSE(session.CanFlush(kWaiting, Kind::kAtOnce));
  }
}

TEST(SessionTest, AnUpdateThatFlushesABusyEngineKillsItBeforeFamilyC) {
  for (const SessionFamily family : {SessionFamily::kA, SessionFamily::kB, SessionFamily::kC}) {
    Session session(family);
    EXPECT_EQ(session.FlushAfterUpdate(kIdle).kind, ReplyKind::kOk);
    EXPECT_EQ(session.FlushAfterUpdate(kRunning).kind,
              family == SessionFamily::kC ? ReplyKind::kRefused : ReplyKind::kDeath);
    session.Pause(PauseMode::kRetract);
    EXPECT_EQ(session.FlushAfterUpdate(kWaiting).kind,
              family == SessionFamily::kA ? ReplyKind::kDeath : ReplyKind::kOk);
  }
}

TEST(SessionTest, MemoryThatWasNotReleasedCannotBeResumed) {
  Session session(SessionFamily::kA);
  EXPECT_EQ(session.Resume({"weights"}), (Reply{ReplyKind::kDeath, "KeyError: 'weights'"}));
  EXPECT_EQ(session.Release({"weights"}, kIdle).kind, ReplyKind::kOk);
  EXPECT_TRUE(session.released("weights"));
  EXPECT_EQ(session.Resume({}).kind, ReplyKind::kDeath);  // all three, and two were not
  EXPECT_EQ(session.Release({}, kIdle).kind, ReplyKind::kOk);
  EXPECT_EQ(session.Resume({}).kind, ReplyKind::kOk);
  EXPECT_FALSE(session.released("kv_cache"));
}

TEST(SessionTest, ReleaseWhileBusyKills) {
  Session session(SessionFamily::kC);
  EXPECT_EQ(session.Release({}, kRunning).kind, ReplyKind::kDeath);
  EXPECT_EQ(session.Release({}, kWaiting).kind, ReplyKind::kDeath);
  session.Pause(PauseMode::kRetract);
  EXPECT_EQ(session.Release({}, kWaiting).kind, ReplyKind::kOk);
}

}  // namespace
}  // namespace refit::engine::reference
