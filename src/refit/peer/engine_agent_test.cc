// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The fences, command by command. Whole syncs are in control/.

#include "refit/peer/engine_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace refit::peer {
namespace {

using sync::AgentCommand;
using sync::AnswerKind;
using sync::Operation;
using sync::ReplyKind;
using sync::Residue;
using sync::ResidueKind;
using ::testing::HasSubstr;
using Kind = sync::AgentCommandKind;

constexpr RunId kRun{{1, 1}};
constexpr Incarnation kLife{{2, 2}};
constexpr AttemptId kAttempt{Term(5), 1};
constexpr Digest kDigest{{3, 3}};

class EngineAgentTest : public ::testing::Test {
 protected:
  explicit EngineAgentTest(sync::SessionFamily family = sync::SessionFamily::kC) : agent_(MakeOptions(family)) {
    Bind();
  }

  static EngineAgentOptions MakeOptions(sync::SessionFamily family) {
    EngineAgentOptions options;
    options.incarnation = kLife;
    options.run = kRun;
    options.term_floor = Term(5);
    options.family = family;
    options.profile = sync::kResilient;
    options.call_deadline = std::chrono::seconds(2);
    options.update_deadline = std::chrono::seconds(2);
    options.flush_retry_interval = std::chrono::seconds(1);
    return options;
  }
  AgentCommand Command(Kind kind) {
    AgentCommand command;
    command.stamp = {kRun, Term(5), CommandSeq(++seq_), kAttempt, WeightVersion(4), kLife};
    command.kind = kind;
    command.budget = std::chrono::seconds(10);
    command.digest = kDigest;
    if (kind == Kind::kAttempt || kind == Kind::kBind) {
      command.manifest = kind == Kind::kAttempt ? manifest_ : nullptr;
      command.streams = {{PolicyRank(0), "policy:0", {}, {0}, LinkId(kind == Kind::kAttempt ? 1 : 0)}};
    }
    return command;
  }
  void Bind() {
    Give(Kind::kBind);
    Give(LinkOpened{LinkId(1), OkStatus()});
  }
  void Give(const EngineAgentEvent& event) {
    effects_.clear();
    agent_.Handle(event, now_, effects_);
  }
  void Deadline(Duration after) {
    now_ += after;
    effects_.clear();
    agent_.HandleDeadline(now_, effects_);
  }
  void Give(const AgentCommand& command) { Give(EngineAgentEvent{CommandArrived{command}}); }
  void Give(Kind kind) { Give(Command(kind)); }
  // Answers calls until the command is answered.
  void Do(Kind kind) {
    Give(kind);
    while (const auto* call = Find<CallEngine>()) {
      Give(EngineAnswered{call->call, {AnswerKind::kOk, ""}});
    }
  }
  void DoUntil(Kind last) {
    for (const Kind kind : {Kind::kAttempt, Kind::kPause, Kind::kFlush, Kind::kBegin, Kind::kTransfer, Kind::kEnd}) {
      Do(kind);
      if (kind == Kind::kTransfer && last != Kind::kTransfer) {
        Load(AnswerKind::kOk);
        Give(TransferEnded{kAttempt, {2, 1, 20}});
      }
      if (kind == last) {
        return;
      }
    }
  }
  void Load(AnswerKind answer) {
    Give(LoadReady{kAttempt});
    const auto* update = Find<PostUpdate>();
    ASSERT_NE(update, nullptr);
    Give(EngineAnswered{update->call, {answer, "its own words"}});
  }
  template <typename T>
  const T* Find() {
    for (const EngineAgentEffect& effect : effects_) {
      if (const auto* found = std::get_if<T>(&effect)) {
        return found;
      }
    }
    return nullptr;
  }
  std::vector<sync::AgentReply> Replies() {
    std::vector<sync::AgentReply> replies;
    for (const EngineAgentEffect& effect : effects_) {
      if (const auto* found = std::get_if<SendReply>(&effect)) {
        replies.push_back(found->reply);
      }
    }
    return replies;
  }
  void ExpectStale(const char* names) {
    ASSERT_EQ(effects_.size(), 1U);
    ASSERT_EQ(Replies().size(), 1U);
    EXPECT_EQ(Replies()[0].kind, ReplyKind::kStale);
    EXPECT_THAT(Replies()[0].status.message(), HasSubstr(names));
  }

  std::shared_ptr<const weights::Manifest> manifest_ =
      std::make_shared<const weights::Manifest>(*weights::Manifest::Make({{"t", weights::DType::kUint8, {1}}}));
  EngineAgent agent_;
  EngineAgentEffects effects_;
  Instant now_{std::chrono::seconds(100)};
  std::uint64_t seq_ = 0;
};

// RX-ID-01: each field alone.
TEST_F(EngineAgentTest, AnyFieldOfTheStampThatDoesNotMatchMakesACommandStale) {
  Do(Kind::kAttempt);
  AgentCommand command = Command(Kind::kPause);
  command.stamp.run = RunId{{9, 9}};
  Give(command);
  ExpectStale("run");
  command = Command(Kind::kPause);
  command.stamp.incarnation = Incarnation{{9, 9}};
  Give(command);
  ExpectStale("incarnation");
  command = Command(Kind::kPause);
  command.stamp.term = Term(4);
  Give(command);
  ExpectStale("term 4");
  command = Command(Kind::kPause);
  command.stamp.version = WeightVersion(3);
  Give(command);
  ExpectStale("version 3");
  Give(Kind::kPause);
  EXPECT_NE(Find<CallEngine>(), nullptr);
}

// RX-ID-02: lower or higher, never treated as current.
TEST_F(EngineAgentTest, ACommandOfAnotherAttemptIsStale) {
  Do(Kind::kAttempt);
  for (const std::uint32_t n : {0U, 2U}) {
    AgentCommand command = Command(Kind::kPause);
    command.stamp.attempt.n = n;
    Give(command);
    ExpectStale("attempt");
  }
  Give(Kind::kAttempt);
  ExpectStale("attempt 5:1, this agent is in attempt 5:1");
  Do(Kind::kPause);
}

// RC-RPC-07: replayed and reordered.
TEST_F(EngineAgentTest, ACommandNotAboveTheHighestAcceptedIsStale) {
  Do(Kind::kAttempt);
  const AgentCommand late = Command(Kind::kAbort);
  const AgentCommand pause = Command(Kind::kPause);
  Give(pause);
  Give(EngineAnswered{Find<CallEngine>()->call, {AnswerKind::kOk, ""}});
  Give(pause);
  ExpectStale("seq 4");
  Give(late);
  ExpectStale("seq 3");
}

TEST_F(EngineAgentTest, AHoldMakesEveryEarlierCommandDead) {
  DoUntil(Kind::kEnd);
  const AgentCommand activate = Command(Kind::kActivate);
  Give(Kind::kHold);
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kDone);
  Give(activate);
  ExpectStale("seq");
  EXPECT_EQ(agent_.residue(), Residue::Complete(WeightVersion(4), kAttempt, kDigest));
}

TEST_F(EngineAgentTest, AHigherTermIsAboveAnySequence) {
  seq_ = 1000;
  Do(Kind::kAttempt);
  AgentCommand command = Command(Kind::kPause);
  command.stamp.term = Term(6);
  command.stamp.seq = CommandSeq(1);
  Give(command);
  EXPECT_NE(Find<CallEngine>(), nullptr);
}

TEST_F(EngineAgentTest, OneMutatingCommandAtATime) {
  Do(Kind::kAttempt);
  Give(Kind::kPause);
  const std::uint64_t call = Find<CallEngine>()->call;
  Give(Kind::kFlush);
  ExpectStale("busy: pause is running");
  Give(EngineAnswered{call, {AnswerKind::kOk, ""}});
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kDone);
}

TEST_F(EngineAgentTest, StepsOutOfOrderAreStaleAndTouchNothing) {
  Do(Kind::kAttempt);
  for (const Kind kind : {Kind::kFlush, Kind::kBegin, Kind::kTransfer, Kind::kEnd, Kind::kActivate}) {
    Give(kind);
    ExpectStale("this engine is serving");
  }
}

TEST_F(EngineAgentTest, AHoldThatOvertakesWaitsForTheCallUnderWay) {
  Do(Kind::kAttempt);
  Give(Kind::kPause);
  const std::uint64_t call = Find<CallEngine>()->call;
  Give(Kind::kHold);
  EXPECT_TRUE(effects_.empty());
  Give(EngineAnswered{call, {AnswerKind::kOk, ""}});
  ASSERT_EQ(Replies().size(), 2U);
  EXPECT_EQ(Replies()[1].kind, ReplyKind::kDone);
  EXPECT_EQ(agent_.phase(), AgentPhase::kHeld);
}

TEST_F(EngineAgentTest, AnEngineThatIsNotPausedIsNotConfirmedHeld) {
  Do(Kind::kAttempt);
  Give(Kind::kHold);
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kFailed);
  EXPECT_EQ(agent_.phase(), AgentPhase::kServing);
}

// RX-COMMIT-07.
TEST_F(EngineAgentTest, AfterAHoldOnlyActivateWakes) {
  DoUntil(Kind::kFlush);
  Do(Kind::kHold);
  AgentCommand resume = Command(Kind::kResumeOld);
  resume.stamp.version = WeightVersion(0);
  Give(resume);
  ExpectStale("held");
}

TEST_F(EngineAgentTest, AResumeNamesTheVersionThatTheEngineHolds) {
  DoUntil(Kind::kBegin);
  Give(Kind::kResumeOld);  // of version 4, which is not what it holds
  ExpectStale("residue old(version 0)");
  AgentCommand resume = Command(Kind::kResumeOld);
  resume.stamp.version = WeightVersion(0);
  Give(resume);
  EXPECT_EQ(Find<CallEngine>()->operation, Operation::kEnd);
}

// RX-COMMIT-11: never resume kMixed.
TEST_F(EngineAgentTest, AMixedEngineIsNeverResumed) {
  DoUntil(Kind::kTransfer);
  Load(AnswerKind::kRefused);
  Give(TransferFenced{kAttempt});
  ASSERT_EQ(Replies().size(), 1U);
  EXPECT_EQ(Replies()[0].residue, Residue::Mixed(WeightVersion(4), kAttempt));
  EXPECT_TRUE(Replies()[0].retryable_in_place);
  EXPECT_THAT(Replies()[0].status.message(), HasSubstr("its own words"));
  for (const std::uint64_t version : {0U, 3U, 4U}) {
    AgentCommand resume = Command(Kind::kResumeOld);
    resume.stamp.version = WeightVersion(version);
    Give(resume);
    ExpectStale("mixed");
  }
}

// RX-COMMIT-04: equal (V, e, digest, incarnation), or nothing.
TEST_F(EngineAgentTest, ActivateActsOnlyOnWhatItNames) {
  DoUntil(Kind::kEnd);
  AgentCommand command = Command(Kind::kActivate);
  command.digest = Digest{{9, 9}};
  Give(command);
  ExpectStale("complete");
  command = Command(Kind::kActivate);
  command.stamp.version = WeightVersion(5);
  Give(command);
  ExpectStale("version 5");
  command = Command(Kind::kActivate);
  command.stamp.attempt.n = 2;
  Give(command);
  ExpectStale("attempt 5:2");
  Give(Kind::kActivate);
  ASSERT_NE(Find<CallEngine>(), nullptr);
  EXPECT_EQ(Find<CallEngine>()->operation, Operation::kLabel);
  EXPECT_EQ(Find<CallEngine>()->version, WeightVersion(4));
}

TEST_F(EngineAgentTest, ActivateOfAServedVersionIsDoneWithoutACall) {
  DoUntil(Kind::kEnd);
  Do(Kind::kActivate);
  EXPECT_EQ(agent_.phase(), AgentPhase::kServing);
  Give(Kind::kActivate);
  ASSERT_EQ(effects_.size(), 1U);
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kDone);
}

TEST_F(EngineAgentTest, ActivateOfAMixedEngineIsStale) {
  DoUntil(Kind::kTransfer);
  Load(AnswerKind::kOk);
  Give(TransferFailed{kAttempt, Unavailable("link down")});
  Give(TransferFenced{kAttempt});
  Give(Kind::kActivate);
  ExpectStale("mixed");
}

// RC-RPC-06: nothing but the kill, and nothing after it.
TEST_F(EngineAgentTest, AfterACallWithoutAnswerNothingIsCalledAnyMore) {
  DoUntil(Kind::kPause);
  Give(Kind::kFlush);
  Give(EngineAnswered{Find<CallEngine>()->call, {AnswerKind::kNone, "connection reset"}});
  EXPECT_NE(Find<KillEngine>(), nullptr);
  EXPECT_EQ(Find<CallEngine>(), nullptr);
  EXPECT_EQ(Replies()[0].residue, Residue::Unknown());
  EXPECT_FALSE(Replies()[0].retryable_in_place);
  for (const Kind kind : {Kind::kFlush, Kind::kBegin, Kind::kResumeOld, Kind::kActivate, Kind::kHold, Kind::kAbort}) {
    Give(kind);
    EXPECT_EQ(Find<CallEngine>(), nullptr);
  }
}

TEST_F(EngineAgentTest, ACallThatOutlivesTheBudgetOfItsCommandIsAmbiguous) {
  DoUntil(Kind::kPause);
  Give(Kind::kFlush);
  EXPECT_EQ(agent_.next_deadline(), now_ + std::chrono::seconds(10));
  Deadline(std::chrono::seconds(10));
  EXPECT_NE(Find<KillEngine>(), nullptr);
  EXPECT_EQ(Replies()[0].status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(agent_.next_deadline(), kNever);
}

TEST_F(EngineAgentTest, ARefusedFlushIsTriedAgainUntilTheBudgetEnds) {
  DoUntil(Kind::kPause);
  Give(Kind::kFlush);
  int tries = 0;
  while (const auto* call = Find<CallEngine>()) {
    ++tries;
    Give(EngineAnswered{call->call, {AnswerKind::kRefused, "2 requests pending"}});
    if (effects_.empty()) {
      Deadline(agent_.next_deadline() - now_);
    }
  }
  EXPECT_EQ(tries, 10);
  EXPECT_THAT(Replies()[0].status.message(), HasSubstr("2 requests pending"));
  EXPECT_EQ(Replies()[0].residue, Residue::Old(WeightVersion(0)));
}

TEST_F(EngineAgentTest, TheDeathOfTheEngineFailsWhatRuns) {
  DoUntil(Kind::kTransfer);
  Give(LoadReady{kAttempt});
  Give(EngineDied{Unavailable("signal 9")});
  EXPECT_NE(Find<StopTransfer>(), nullptr);
  EXPECT_THAT(Replies()[0].status.message(), HasSubstr("signal 9"));
  EXPECT_EQ(agent_.phase(), AgentPhase::kDead);
}

// RX-XFER-12: READY only when the previous attempt is fenced, and an ABORT is confirmed only then.
TEST_F(EngineAgentTest, AnAbortIsConfirmedWhenTheTransferIsFencedAndItsUpdateAnswered) {
  DoUntil(Kind::kTransfer);
  Give(LoadReady{kAttempt});
  const std::uint64_t update = Find<PostUpdate>()->call;
  Give(Kind::kAbort);
  EXPECT_NE(Find<StopTransfer>(), nullptr);
  EXPECT_TRUE(Replies().empty());
  Give(TransferFenced{kAttempt});
  EXPECT_TRUE(Replies().empty());
  Give(EngineAnswered{update, {AnswerKind::kOk, ""}});
  ASSERT_EQ(Replies().size(), 2U);
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kFailed);
  EXPECT_EQ(Replies()[1].kind, ReplyKind::kDone);
  EXPECT_EQ(Replies()[1].residue.kind, ResidueKind::kMixed);
}

// RX-XFER-05: so no sender is told to fill a load slot again (that waits for every agent) while an old read may run.
TEST_F(EngineAgentTest, AnAttemptWaitsForTheFenceOfTheOneBefore) {
  DoUntil(Kind::kTransfer);
  Deadline(std::chrono::seconds(10));
  EXPECT_NE(Find<StopTransfer>(), nullptr);
  ASSERT_EQ(Replies().size(), 1U);
  AgentCommand next = Command(Kind::kAttempt);
  next.stamp.attempt.n = 2;
  Give(next);
  EXPECT_TRUE(effects_.empty());
  Give(TransferFenced{kAttempt});
  ASSERT_EQ(Replies().size(), 1U);
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kDone);
}

TEST_F(EngineAgentTest, WhatCannotBeFencedInTimeIsKilled) {
  DoUntil(Kind::kTransfer);
  Give(Kind::kAbort);
  Deadline(std::chrono::seconds(10));
  EXPECT_NE(Find<KillEngine>(), nullptr);
}

TEST_F(EngineAgentTest, EventsOfAnotherAttemptAreIgnored) {
  DoUntil(Kind::kTransfer);
  const AttemptId other{Term(5), 7};
  Give(LoadReady{other});
  EXPECT_TRUE(effects_.empty());
  Give(TransferEnded{other, {9, 9, 9}});
  EXPECT_TRUE(effects_.empty());
  Give(TransferFailed{other, Unavailable("late")});
  EXPECT_TRUE(effects_.empty());
  Give(EngineAnswered{999, {AnswerKind::kRefused, "late"}});
  EXPECT_TRUE(effects_.empty());
}

// RC-ROLE-02: every TP rank has its receiver, one stream's or its own.
TEST_F(EngineAgentTest, StreamsMustFeedEachRankOnce) {
  AgentCommand command = Command(Kind::kAttempt);
  command.streams.clear();
  Give(command);
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kFailed);
  command = Command(Kind::kAttempt);
  command.stamp.attempt.n = 2;
  command.streams.push_back(command.streams[0]);
  Give(command);
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kFailed);
  EXPECT_TRUE(Replies()[0].retryable_in_place);
}

// RC-CFG-06, table 11.2.
TEST(EngineAgentOptions, RetractOnFamilyAAndAttachingToFamilyBAreRefused) {
  EngineAgentOptions options;
  options.pause_mode = sync::PauseMode::kRetract;
  EXPECT_THAT(CheckEngineAgentOptions(options).message(), HasSubstr("retract"));
  options.family = sync::SessionFamily::kC;
  EXPECT_TRUE(CheckEngineAgentOptions(options).ok());
  options.family = sync::SessionFamily::kB;
  options.attached = true;
  EXPECT_EQ(CheckEngineAgentOptions(options).remedy(), "restart the engine");
}

}  // namespace
}  // namespace refit::peer
