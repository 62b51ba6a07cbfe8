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

// RX-ID-04: an address is used again. Whoever answers there says nothing about the life that was asked.
TEST_F(EngineAgentTest, ACommandForAnotherLifeIsNotAnsweredWithWhatThisOneHolds) {
  AgentCommand command = Command(Kind::kAbort);
  command.stamp.incarnation = Incarnation{{9, 9}};
  Give(command);
  ASSERT_EQ(Replies().size(), 1U);
  EXPECT_EQ(Replies()[0].residue.kind, ResidueKind::kUnknown);
  EXPECT_FALSE(Replies()[0].serving || Replies()[0].retryable_in_place);
  Give(Command(Kind::kAbort));
  EXPECT_EQ(Replies()[0].residue, Residue::Old(WeightVersion(0)));
  EXPECT_TRUE(Replies()[0].serving);
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
  Give(EngineAnswered{Find<CallEngine>()->call, {AnswerKind::kRefused, "no"}});
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

// RX-ID-04: addressed to the life that said it is complete, not to whoever is in the slot now.
TEST_F(EngineAgentTest, AnActivationIsForTheLifeThatItNames) {
  DoUntil(Kind::kEnd);
  AgentCommand command = Command(Kind::kActivate);
  command.stamp.incarnation = Incarnation{{9, 9}};
  Give(command);
  ExpectStale("incarnation");
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

// C2, C8: a server that only refuses is not killed because its last call had no time for an answer.
TEST_F(EngineAgentTest, AFlushIsNotTriedAgainWhereNoTimeIsLeftForAnAnswer) {
  DoUntil(Kind::kPause);
  Give(Kind::kFlush);
  while (const auto* call = Find<CallEngine>()) {
    EXPECT_GE(call->deadline, std::chrono::milliseconds(500));
    now_ += std::chrono::milliseconds(70);  // what the refusal took: the tenth try would come at 9.63 s of 10
    Give(EngineAnswered{call->call, {AnswerKind::kRefused, "2 requests pending"}});
    if (effects_.empty()) {
      Deadline(agent_.next_deadline() - now_);
    }
  }
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

// RX-ID-03: a life obeys nobody below the term that the authority had when it began, also in its first command.
TEST_F(EngineAgentTest, ANewLifeObeysNobodyBelowItsTermFloor) {  // S62
  EngineAgentOptions options = MakeOptions(sync::SessionFamily::kC);
  options.term_floor = Term(9);
  EngineAgent agent(options);
  EngineAgentEffects effects;
  AgentCommand command = Command(Kind::kBind);
  command.stamp.term = Term(8);
  command.stamp.seq = CommandSeq(1000);
  agent.Handle(CommandArrived{command}, now_, effects);
  ASSERT_EQ(effects.size(), 1U);
  EXPECT_EQ(std::get<SendReply>(effects[0]).reply.kind, ReplyKind::kStale);
  EXPECT_EQ(std::get<SendReply>(effects[0]).reply.highest_term, Term(9));  // RX-LEAD-04: whoever asks, learns it
}

// RX-LEAD-02: read again at the authority whenever a controller is found; who was superseded is not heard any more.
TEST_F(EngineAgentTest, ContactRaisesTheTermThatIsObeyed) {
  Give(ContactMade{Term(7)});
  AgentCommand command = Command(Kind::kAttempt);
  command.stamp.term = Term(6);
  Give(command);
  ExpectStale("term 6");
  EXPECT_EQ(Replies()[0].highest_term, Term(7));
}

// RX-JRNL-04: what a successor asks for: attempt, residue, whether it serves, and the highest term.
TEST_F(EngineAgentTest, AnAnswerSaysWhatTheMachineHolds) {
  DoUntil(Kind::kEnd);
  Give(Kind::kAbort);
  ASSERT_EQ(Replies().size(), 1U);
  EXPECT_EQ(Replies()[0].residue, Residue::Complete(WeightVersion(4), kAttempt, kDigest));
  EXPECT_EQ(Replies()[0].attempt, kAttempt);
  EXPECT_EQ(Replies()[0].highest_term, Term(5));
  EXPECT_FALSE(Replies()[0].serving);
  Do(Kind::kActivate);
  Give(Kind::kAbort);
  EXPECT_TRUE(Replies()[0].serving);
  EXPECT_EQ(Replies()[0].residue, Residue::Old(WeightVersion(4), kDigest));
}

// RX-JRNL-05: without any controller what does not serve is ended at the orphan deadline; what serves, goes on.
TEST_F(EngineAgentTest, AnOrphanEndsItsEngineUnlessItServes) {
  for (const bool serves : {false, true}) {
    EngineAgentOptions options = MakeOptions(sync::SessionFamily::kC);
    options.orphan_deadline = std::chrono::seconds(30);
    agent_ = EngineAgent(options);
    seq_ = 0;
    Bind();
    DoUntil(serves ? Kind::kEnd : Kind::kPause);
    if (serves) {
      Do(Kind::kActivate);
    }
    Give(ContactLost{});
    Deadline(std::chrono::seconds(29));
    EXPECT_EQ(Find<KillEngine>(), nullptr);
    Deadline(std::chrono::seconds(2));
    EXPECT_EQ(Find<KillEngine>() != nullptr, !serves);
    EXPECT_EQ(agent_.phase(), serves ? AgentPhase::kServing : AgentPhase::kDead);
  }
}

// RX-JRNL-05: a controller that was found again is contact.
TEST_F(EngineAgentTest, AnOrphanThatIsFoundAgainLives) {
  EngineAgentOptions options = MakeOptions(sync::SessionFamily::kC);
  options.orphan_deadline = std::chrono::seconds(30);
  agent_ = EngineAgent(options);
  seq_ = 0;
  Bind();
  DoUntil(Kind::kPause);
  Give(ContactLost{});
  Give(ContactMade{Term(5)});
  EXPECT_EQ(agent_.next_deadline(), kNever);
}

// RC-BIND-03, -04, -06, RX-BIND-06: a pair that did not change keeps its link; the old peer's goes before the new one's
// comes; no number is used twice; an attempt uses exactly the link that it names.
TEST_F(EngineAgentTest, ARebindClosesTheOldLinkBeforeItOpensTheNewOne) {
  AgentCommand bind = Command(Kind::kBind);
  Give(bind);
  EXPECT_EQ(Find<OpenLink>(), nullptr);  // the same pair: nothing goes over the wire
  ASSERT_EQ(Replies().size(), 1U);
  EXPECT_EQ(Replies()[0].links[0].link, LinkId(1));
  bind = Command(Kind::kBind);
  bind.streams[0].incarnation = Incarnation{{8, 8}};
  Give(bind);
  ASSERT_EQ(effects_.size(), 2U);
  EXPECT_EQ(std::get<CloseLink>(effects_[0]).link, LinkId(1));
  EXPECT_EQ(std::get<OpenLink>(effects_[1]).link, LinkId(2));
  Give(LinkOpened{LinkId(2), OkStatus()});
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kDone);
  Give(Kind::kAttempt);  // names link 1
  ASSERT_EQ(effects_.size(), 1U);
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kUnbound);
  EXPECT_EQ(agent_.attempt(), AttemptId{});
}

// RX-BIND-02, -04: a link that was not proved carries nothing, and a bind that failed leaves none behind.
TEST_F(EngineAgentTest, ABindThatFailsLeavesNoLinkBehind) {  // S18
  AgentCommand bind = Command(Kind::kBind);
  bind.streams = {{PolicyRank(0), "policy:0", Incarnation{{8, 8}}, {0}, {}},
                  {PolicyRank(1), "policy:1", {}, {1}, {}},
                  {PolicyRank(2), "policy:2", {}, {2}, {}}};
  Give(bind);
  Give(LinkOpened{LinkId(2), OkStatus()});
  Give(LinkOpened{LinkId(3), DataLoss("the block came back altered")});
  std::vector<LinkId> closed;
  for (const EngineAgentEffect& effect : effects_) {
    if (const auto* close = std::get_if<CloseLink>(&effect)) {
      closed.push_back(close->link);
    }
  }
  EXPECT_THAT(closed, ::testing::UnorderedElementsAre(LinkId(2), LinkId(3), LinkId(4)));
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kFailed);
  EXPECT_THAT(Replies()[0].status.message(), HasSubstr("policy rank 1: the block came back altered"));
  EXPECT_TRUE(agent_.links().empty());
  Give(LinkOpened{LinkId(4), OkStatus()});  // too late
  EXPECT_TRUE(agent_.links().empty());
}

// RX-BIND-02: a handshake that does not end is a failed one.
TEST_F(EngineAgentTest, ALinkThatIsNotProvedInTimeFailsTheBind) {
  AgentCommand bind = Command(Kind::kBind);
  bind.streams[0].incarnation = Incarnation{{8, 8}};
  Give(bind);
  Deadline(std::chrono::seconds(10));
  EXPECT_EQ(Replies()[0].status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(Find<CloseLink>(), nullptr);
  EXPECT_TRUE(agent_.links().empty());
}

// RX-TIME-02: a transfer is judged by what comes, however long it takes; while an update is out, that call's deadline
// counts.
TEST_F(EngineAgentTest, ATransferThatBringsNothingForAWhileHasStalled) {
  DoUntil(Kind::kBegin);
  AgentCommand transfer = Command(Kind::kTransfer);
  transfer.budget = std::chrono::seconds(600);
  Give(transfer);
  for (int load = 0; load < 3; ++load) {
    Deadline(std::chrono::seconds(29));
    EXPECT_EQ(effects_.size(), 0U);
    Load(AnswerKind::kOk);
  }
  EXPECT_EQ(agent_.next_deadline(), now_ + std::chrono::seconds(30));
  Give(LoadReady{kAttempt});
  const std::uint64_t update = Find<PostUpdate>()->call;
  EXPECT_GT(agent_.next_deadline(), now_ + std::chrono::seconds(30));
  Give(EngineAnswered{update, {AnswerKind::kOk, ""}});
  Deadline(std::chrono::seconds(30));
  ASSERT_NE(Find<StopTransfer>(), nullptr);
  Give(TransferFenced{kAttempt});
  ASSERT_EQ(Replies().size(), 1U);
  EXPECT_EQ(Replies()[0].status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Replies()[0].status.message(), HasSubstr("no load came for 30000 ms, after 4"));
}

// RX-TIME-04: what waits is bounded, and the overflow is refused.
TEST_F(EngineAgentTest, CommandsThatOvertakeAreNotPiledUp) {
  DoUntil(Kind::kBegin);
  Give(Kind::kTransfer);
  for (int command = 0; command < 16; ++command) {
    Give(Kind::kAbort);
    EXPECT_TRUE(Replies().empty());
  }
  Give(Kind::kAbort);
  ExpectStale("16 commands wait");
  Give(TransferFenced{kAttempt});
  EXPECT_EQ(Replies().size(), 17U) << "the transfer, and each that waited";
}

// RX-COMMIT-03: a HOLD pauses what is not paused yet, and confirms it only then.
TEST_F(EngineAgentTest, AHoldOfAnUnpausedEnginePausesIt) {
  Give(Kind::kHold);
  EXPECT_TRUE(Replies().empty());
  ASSERT_NE(Find<CallEngine>(), nullptr);
  EXPECT_EQ(Find<CallEngine>()->operation, Operation::kPause);
  Give(EngineAnswered{Find<CallEngine>()->call, {AnswerKind::kOk, ""}});
  EXPECT_EQ(Replies()[0].kind, ReplyKind::kDone);
  EXPECT_EQ(agent_.phase(), AgentPhase::kHeld);
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
