// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How long things may take, how often they are tried, and how much may pile up (contract §II.14).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "refit/base/str.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = sync::AgentCommandKind;

// ---- RX-TIME-02

// Only a transfer waits for others. Whatever else takes longer than the stall deadline has failed, long before the
// sync.
TEST(Time, AStepThatWaitsForNobodyHasTheStallDeadline) {
  FleetRig rig({.budget = seconds(600)});
  ASSERT_TRUE(rig.Sync().status.ok());
  for (const sync::AgentCommand& command : rig.commands(0)) {
    EXPECT_EQ(command.budget <= seconds(30), command.kind != Kind::kTransfer) << ToString(command.kind);
  }
}

// What stalls is found long before the sync's deadline, and costs an attempt.
TEST(Time, ATransferWithoutProgressFailsAtTheStallDeadline) {
  FleetRig rig({.budget = seconds(600)});
  rig.hold_loads = true;
  const Instant asked = rig.now();
  rig.on_agent_command = [&](SlotIndex, const sync::AgentCommand& command) {
    rig.hold_loads = rig.hold_loads && command.stamp.attempt.n == 1;
    return true;
  };
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_EQ(answer.outcome->attempt.n, 2U);
  EXPECT_GE(rig.now() - asked, seconds(30));
  EXPECT_LT(rig.now() - asked, seconds(31));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// Says, every 5 s of the transfer, how much each engine has.
void Tell(FleetRig& rig, const std::vector<ByteCount>& per_window, int windows) {
  rig.hold_loads = true;
  rig.Request("r");
  rig.RunUntilQuiet();
  for (int window = 0; window <= windows; ++window) {
    for (std::uint32_t slot = 0; slot < per_window.size(); ++slot) {
      rig.Deliver(sync::SessionEvent{
          sync::Delivered{SlotIndex(slot), rig.incarnation(slot), static_cast<ByteCount>(window) * per_window[slot]}});
    }
    rig.RunFor(seconds(5));
  }
}

TEST(Time, WhoIsSlowWhileTheOthersAreFastIsQuarantined) {  // S27
  FleetRig rig({.engines = 3, .policies = 3, .budget = seconds(600), .min_rate = 1000});
  Tell(rig, {10'000, 100, 10'000}, 2);
  EXPECT_FALSE(rig.engine(1).dead());
  rig.Deliver(sync::SessionEvent{sync::Delivered{SlotIndex(0), rig.incarnation(0), 30'000}});
  rig.Deliver(sync::SessionEvent{sync::Delivered{SlotIndex(1), rig.incarnation(1), 300}});
  rig.RunUntilQuiet();
  EXPECT_TRUE(rig.engine(1).dead());
  EXPECT_FALSE(rig.engine(0).dead() || rig.engine(2).dead());
}

// One slow engine is not a slow fabric: where others are slow as well, nobody is to blame.
TEST(Time, WhereSeveralAreSlowNobodyIsQuarantined) {  // S28
  FleetRig rig({.engines = 3, .policies = 3, .budget = seconds(600), .min_rate = 1000});
  Tell(rig, {200, 100, 10'000}, 4);
  for (const std::uint32_t slot : {0U, 1U, 2U}) {
    EXPECT_FALSE(rig.engine(slot).dead());
  }
}

TEST(Time, SlownessIsReportedByEveryProfile) {
  FleetRig rig({.profile = sync::kStrict, .budget = seconds(600), .min_rate = 1000});
  Tell(rig, {10'000, 100}, 4);
  EXPECT_FALSE(rig.engine(1).dead());
  rig.Run();
  EXPECT_THAT(rig.TakeAnswers()[0].outcome->notes, Contains(HasSubstr("engine 1 is slow: 20 bytes/s")));
}

// ---- RX-TIME-03

// When each command of that kind was sent to engine 0.
std::vector<Duration> SentAt(FleetRig& rig, Kind kind) {
  std::vector<Duration> sent;
  rig.on_agent_command = [&rig, &sent, kind](SlotIndex slot, const sync::AgentCommand& command) {
    if (slot == SlotIndex(0) && command.kind == kind) {
      sent.push_back(rig.now() - Instant{});
    }
    return true;
  };
  static_cast<void>(rig.Sync());
  return sent;
}

TEST(Time, AttemptsAreSpacedByAGrowingBackoff) {
  FleetRig rig({});
  rig.on_load = [&](SlotIndex slot, std::size_t load) {
    if (slot == SlotIndex(0) && load == 1) {
      rig.BreakLink(0);
    }
  };
  const std::vector<Duration> sent = SentAt(rig, Kind::kAttempt);
  ASSERT_GE(sent.size(), 2U);
  EXPECT_GE(sent[1] - sent[0], milliseconds(50));
  EXPECT_LE(sent[1] - sent[0], milliseconds(100));
}

// What ends the sync while an attempt waits for its time is carried out then, and nothing waits for that time any more.
TEST(Time, ACancellationEndsTheBackoff) {
  FleetRig rig({});
  rig.hold_loads = true;
  rig.Request("r");
  rig.RunUntilQuiet();
  rig.BreakLink(0);
  rig.RunUntilQuiet();
  ASSERT_EQ(rig.records("ABORTED").size(), 1U);
  ASSERT_EQ(rig.controller().phase(), sync::SessionPhase::kFencing);
  rig.on_agent_reply = [](SlotIndex, const sync::AgentReply&) { return false; };
  rig.Deliver(control::SyncCancelled{"r"});
  rig.RunFor(seconds(1));
  EXPECT_EQ(rig.controller().phase(), sync::SessionPhase::kUndoing);
  EXPECT_EQ(rig.traced("0 attempt"), 1);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// A back-off that reaches beyond the sync's deadline is not waited for.
TEST(Time, AnActivationThatWouldBeTriedAgainTooLateIsOver) {
  FleetRig rig({.budget = seconds(1)});
  rig.engine(0).SetFault(sync::Operation::kResume, {});
  std::optional<sync::AgentReply> held;
  rig.on_agent_reply = [&held](SlotIndex slot, const sync::AgentReply& reply) {
    const bool holds = slot == SlotIndex(0) && reply.kind == sync::ReplyKind::kFailed && !held.has_value();
    held = holds ? reply : held;
    return !holds;
  };
  rig.Request("r");
  rig.RunFor(milliseconds(980));
  ASSERT_TRUE(held.has_value());
  rig.Deliver(sync::SessionEvent{sync::AgentReplied{SlotIndex(0), *held}});
  rig.RunFor(seconds(1));
  EXPECT_TRUE(rig.engine(0).dead());
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(1)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

TEST(Time, ABindIsTriedAgainAfterABackoff) {
  FleetRig rig({});
  rig.on_link = [tries = 0](SlotIndex slot, const sync::StreamSource&) mutable {
    return slot == SlotIndex(0) && tries++ == 0 ? Unavailable("not yet") : OkStatus();
  };
  const std::vector<Duration> sent = SentAt(rig, Kind::kBind);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_GE(sent[1] - sent[0], milliseconds(50));
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(1)));
}

// At most one command in five is a retry, however many engines ask for one: 12 binds and 12 activations do, 22 may.
TEST(Time, RetriesHaveABudget) {
  FleetRig rig({.engines = 12, .policies = 1});
  std::set<SlotIndex> failed;
  rig.on_link = [&failed](SlotIndex slot, const sync::StreamSource&) {
    return failed.insert(slot).second ? Unavailable("not yet") : OkStatus();
  };
  for (std::uint32_t slot = 0; slot < 12; ++slot) {
    rig.engine(slot).SetFault(sync::Operation::kResume, {});
  }
  EXPECT_TRUE(rig.Sync().status.ok());
  int binds = 0;
  int serving = 0;
  for (std::uint32_t slot = 0; slot < 12; ++slot) {
    binds += rig.traced(StrCat(slot, " bind"));
    serving += rig.engine(slot).serves(WeightVersion(1)) && rig.engine(slot).generates() ? 1 : 0;
  }
  EXPECT_EQ(binds, 24);
  EXPECT_EQ(serving, 10);
}

// RX-BIND-04, RX-QUAR-03 (S30): also where it is a catch-up that binds.
TEST(Time, AReplacementWhoseBindFailsTwiceIsQuarantined) {
  FleetRig rig({.retains = true, .catch_up_budget = seconds(60)});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.on_link = [](SlotIndex slot, const sync::StreamSource&) {
    return slot == SlotIndex(1) ? Unavailable("its port is closed") : OkStatus();
  };
  rig.LoseAgent(1);
  rig.Launch(1);
  rig.RunFor(seconds(5));
  EXPECT_EQ(rig.traced("1 bind"), 1 + 2) << "the first sync, then two tries";
  EXPECT_TRUE(rig.engine(1).dead());
  rig.ClearTrace();
  EXPECT_TRUE(rig.Sync().status.ok()) << "nobody waits for it";
  EXPECT_EQ(rig.traced("1 bind"), 0);
}

// ---- RX-TIME-04

TEST(Time, WhoAsksAgainAndAgainIsRefused) {
  FleetRig rig({});
  rig.block_send = true;
  for (int asked = 0; asked < 65; ++asked) {
    rig.Request("the same");
  }
  rig.RunUntilQuiet();
  const std::vector<control::SyncAnswered> refused = rig.TakeAnswers();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].status.code(), StatusCode::kResourceExhausted);
}

TEST(Time, AJournalThatFallsTooFarBehindStopsTheController) {
  FleetRig rig({.append_deadline = std::chrono::hours(10)});
  rig.on_append = [](const control::Record&) { return std::optional<Status>(); };
  for (std::uint32_t slot = 100; slot < 100 + 4097 && rig.exit_code() == 0; ++slot) {
    rig.Deliver(control::SlotRequested{"", control::SlotAction::kAdd, SlotIndex(slot)});
    rig.Deliver(control::SlotRequested{"", control::SlotAction::kRemove, SlotIndex(slot)});
    rig.RunUntilQuiet();
  }
  EXPECT_EQ(rig.exit_code(), control::kExitJournalInDoubt);
}

// ---- RX-SUM-03

control::HashesCompared Compared(FleetRig& rig, std::vector<std::optional<Digest>> differences) {
  control::HashesCompared compared{WeightVersion(1), {}};
  for (std::uint32_t slot = 0; slot < differences.size(); ++slot) {
    compared.engines.push_back({SlotIndex(slot), rig.incarnation(slot), differences[slot]});
  }
  return compared;
}
constexpr Digest kGarbled{{7, 7}};
constexpr Digest kOtherwise{{8, 8}};

TEST(Proof, WhoServesOtherWeightsThanTheVersionIsQuarantined) {
  FleetRig rig({.engines = 3});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.Deliver(Compared(rig, {std::nullopt, kGarbled, kGarbled}));
  rig.Run();
  EXPECT_FALSE(rig.engine(0).dead()) << "engines are not compared with each other";
  EXPECT_TRUE(rig.engine(1).dead() && rig.engine(2).dead());
}

TEST(Proof, WhereAllDifferAlikeNobodyIs) {
  FleetRig rig({.engines = 2});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.Deliver(Compared(rig, {kGarbled, kGarbled}));
  rig.Run();
  EXPECT_FALSE(rig.engine(0).dead() || rig.engine(1).dead());
  rig.Deliver(Compared(rig, {kGarbled, kOtherwise}));
  rig.Run();
  EXPECT_TRUE(rig.engine(0).dead() && rig.engine(1).dead());
}

TEST(Proof, OfAnEarlierVersionOrLifeOrInStrictItIsOnlyReported) {
  FleetRig strict({.profile = sync::kStrict});
  ASSERT_TRUE(strict.Sync().status.ok());
  strict.Deliver(Compared(strict, {std::nullopt, kGarbled}));
  strict.Run();
  EXPECT_FALSE(strict.engine(1).dead());

  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  const control::HashesCompared late = Compared(rig, {std::nullopt, kGarbled});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.Deliver(late);
  rig.Run();
  EXPECT_FALSE(rig.engine(1).dead());
}

// ---- RC-SESS-09

// Whether a failed transfer ends the run is for the transport to say; nobody is resumed either way.
TEST(RedoSafe, DecidesWhetherAFailedTransferLatches) {
  for (const bool redo_safe : {false, true}) {
    FleetRig rig({.profile = sync::kStrict, .redo_safe = redo_safe});
    rig.on_load = [&](SlotIndex, std::size_t) { rig.BreakLink(0); };
    EXPECT_FALSE(rig.Sync().status.ok());
    EXPECT_EQ(rig.controller().latch().has_value(), !redo_safe);
    EXPECT_THAT(rig.engine(0).calls(), Not(Contains("resume")));
    rig.on_load = nullptr;
    EXPECT_EQ(rig.Sync().status.ok(), redo_safe);
    EXPECT_EQ(rig.engine(0).serves(WeightVersion(1)) || rig.engine(0).serves(WeightVersion(2)), redo_safe);
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

}  // namespace
}  // namespace refit::testing
