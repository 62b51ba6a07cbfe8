// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The pieces of a session that whole syncs (control/) cannot see at their edges.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refit/sync/envelope.h"
#include "refit/sync/session.h"

namespace refit::sync {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = AgentCommandKind;

std::vector<PolicyMember> Policies(std::uint32_t count) {
  std::vector<PolicyMember> policies;
  for (std::uint32_t rank = count; rank-- > 0;) {  // not in order, on purpose
    policies.push_back({PolicyRank(rank), Incarnation{{1, rank + 1}}, "policy:" + std::to_string(rank)});
  }
  return policies;
}

std::vector<EngineMember> Engines(std::vector<std::uint32_t> slots, std::uint32_t tp_size) {
  std::vector<EngineMember> engines;
  for (const std::uint32_t slot : slots) {
    engines.push_back({SlotIndex(slot), Incarnation{{2, slot + 1}}, tp_size, Residue::Old(WeightVersion(0))});
  }
  return engines;
}

using Pairs = std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>>;
Pairs Of(const std::vector<StreamSource>& streams) {
  Pairs pairs;
  for (const StreamSource& stream : streams) {
    pairs.emplace_back(stream.policy.value(), stream.tp_ranks);
  }
  return pairs;
}

// RC-TOPO-02: rank i feeds rollout rank i; surplus policy ranks have no peer.
TEST(MapStreams, PairsRankWithRankWhenThereAreEnoughPolicyWorkers) {
  auto streams = MapStreams(Policies(4), Engines({0, 1, 2}, 1));
  EXPECT_EQ(Of(streams[SlotIndex(0)]), (Pairs{{0, {0}}}));
  EXPECT_EQ(Of(streams[SlotIndex(1)]), (Pairs{{1, {0}}}));
  EXPECT_EQ(Of(streams[SlotIndex(2)]), (Pairs{{2, {0}}}));
  streams = MapStreams(Policies(5), Engines({1, 0}, 2));
  EXPECT_EQ(Of(streams[SlotIndex(0)]), (Pairs{{0, {0}}, {1, {1}}}));
  EXPECT_EQ(Of(streams[SlotIndex(1)]), (Pairs{{2, {0}}, {3, {1}}}));
  EXPECT_EQ(streams[SlotIndex(1)][0].address, "policy:2");
  EXPECT_EQ(streams[SlotIndex(1)][0].incarnation, (Incarnation{{1, 3}}));
}

// RC-TOPO-03: a rollout rank is slot · tp + local, whoever else is here.
TEST(MapStreams, AMissingSlotDoesNotRenumberTheOthers) {
  auto streams = MapStreams(Policies(6), Engines({1, 2}, 2));
  EXPECT_EQ(Of(streams[SlotIndex(1)]), (Pairs{{2, {0}}, {3, {1}}}));
  EXPECT_EQ(Of(streams[SlotIndex(2)]), (Pairs{{4, {0}}, {5, {1}}}));
}

// RC-TOPO-08: engine k from rank k mod P, and its ranks share one stream.
TEST(MapStreams, FewerPolicyWorkersFanOutByEngine) {
  auto streams = MapStreams(Policies(2), Engines({0, 1, 2}, 3));
  EXPECT_EQ(Of(streams[SlotIndex(0)]), (Pairs{{0, {0, 1, 2}}}));
  EXPECT_EQ(Of(streams[SlotIndex(1)]), (Pairs{{1, {0, 1, 2}}}));
  EXPECT_EQ(Of(streams[SlotIndex(2)]), (Pairs{{0, {0, 1, 2}}}));
}

TEST(MapStreams, NobodyFeedsNobody) {
  EXPECT_THAT(MapStreams({}, Engines({0}, 1)), IsEmpty());
  EXPECT_THAT(MapStreams(Policies(1), {}), IsEmpty());
}

// RC-SESS-01.
TEST(Envelope, IsInTheOrderOfTheContract) {
  EXPECT_THAT(Envelope(), ElementsAre(Kind::kBind, Kind::kAttempt, Kind::kOnloadWeights, Kind::kPause, Kind::kFlush,
                                      Kind::kBegin, Kind::kTransfer, Kind::kEnd));
}

TEST(Envelope, CallsFollowFromWhatIsKnownOfTheEngine) {
  EngineFacts facts;
  EXPECT_THAT(CallsOf(Kind::kOnloadWeights, facts), IsEmpty());
  EXPECT_THAT(CallsOf(Kind::kBegin, facts), ElementsAre(Operation::kBegin));
  EXPECT_THAT(CallsOf(Kind::kEnd, facts), IsEmpty());
  EXPECT_THAT(CallsOf(Kind::kActivate, facts), ElementsAre(Operation::kLabel, Operation::kResume));
  facts.begun = true;
  facts.kv_cache_released = true;
  facts.version_label = VersionLabel::kOnEveryUpdate;
  EXPECT_THAT(CallsOf(Kind::kBegin, facts), ElementsAre(Operation::kEnd, Operation::kBegin));
  EXPECT_THAT(CallsOf(Kind::kResumeOld, facts),
              ElementsAre(Operation::kEnd, Operation::kOnloadKvCache, Operation::kResume));
  EXPECT_THAT(CallsOf(Kind::kActivate, facts), ElementsAre(Operation::kOnloadKvCache, Operation::kResume));
  facts.has_sessions = false;
  EXPECT_THAT(CallsOf(Kind::kBegin, facts), IsEmpty());
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    SessionOptions options;
    options.profile = kResilient;
    options.attempt = {Term(1), 1};
    options.version = WeightVersion(1);
    options.engines = Engines({0}, 1);
    options.policies = Policies(1);
    options.deadline = now_ + std::chrono::seconds(80);
    options.next_seq[SlotIndex(0)] = CommandSeq(7);
    session_.emplace(options);
    Give(Started{});
    PolicyReply lease{Find<SendToPolicy>()->command.stamp, ReplyKind::kDone, {}, nullptr, {}, {}};
    lease.manifest =
        std::make_shared<const weights::Manifest>(*weights::Manifest::Make({{"t", weights::DType::kUint8, {1}}}));
    Give(PolicyReplied{PolicyRank(0), lease});
  }
  void Give(const SessionEvent& event) {
    effects_.clear();
    session_->Handle(event, now_, effects_);
  }
  AgentReply Done() { return {command_.stamp, ReplyKind::kDone, {}, Residue::Old(WeightVersion(0)), {}, true}; }
  template <typename T>
  const T* Find() {
    for (const SessionEffect& effect : effects_) {
      if (const auto* found = std::get_if<T>(&effect)) {
        return found;
      }
    }
    return nullptr;
  }

  Instant now_{std::chrono::seconds(1)};
  std::optional<Session> session_;
  SessionEffects effects_;
  AgentCommand command_;
};

// RX-ID-02, -04, RC-RPC-07: an answer counts only if it is to what we asked, of whom we asked it.
TEST_F(SessionTest, AnswersToSomethingElseAreIgnored) {
  command_ = Find<SendToAgent>()->command;
  EXPECT_EQ(command_.stamp.seq, CommandSeq(7));
  AgentReply reply = Done();
  reply.stamp.incarnation = Incarnation{{9, 9}};
  Give(AgentReplied{SlotIndex(0), reply});
  EXPECT_THAT(effects_, IsEmpty());
  reply = Done();
  reply.stamp.attempt.n = 2;
  Give(AgentReplied{SlotIndex(0), reply});
  EXPECT_THAT(effects_, IsEmpty());
  reply = Done();
  reply.stamp.seq = CommandSeq(6);
  Give(AgentReplied{SlotIndex(0), reply});
  EXPECT_THAT(effects_, IsEmpty());
  Give(AgentReplied{SlotIndex(1), Done()});
  EXPECT_THAT(effects_, IsEmpty());
  Give(AgentReplied{SlotIndex(0), Done()});
  EXPECT_NE(Find<SendToAgent>(), nullptr);
  Give(AgentReplied{SlotIndex(0), Done()});  // the same answer twice
  EXPECT_THAT(effects_, IsEmpty());
}

TEST_F(SessionTest, TheLossOfAnotherIncarnationIsNoLoss) {
  Give(AgentLost{SlotIndex(0), Incarnation{{9, 9}}, Unavailable("old news")});
  EXPECT_EQ(Find<Finished>(), nullptr);
  Give(AgentLost{SlotIndex(0), Incarnation{{2, 1}}, Unavailable("gone")});
  ASSERT_NE(Find<Finished>(), nullptr);
  EXPECT_EQ(Find<Finished>()->outcome.status.message(), "engine 0: gone");
}

// RX-TIME-01: each step takes what is left of one budget, and says it as a duration.
TEST_F(SessionTest, ABudgetIsWhatIsLeftAndTheFirstDeadlineLeavesTimeToUndo) {
  command_ = Find<SendToAgent>()->command;
  EXPECT_EQ(command_.budget, std::chrono::seconds(30)) << "RX-TIME-02: it waits for nobody; what takes longer, stalls";
  EXPECT_EQ(session_->next_deadline(), now_ + std::chrono::seconds(70));
  now_ += std::chrono::seconds(15);
  Give(AgentReplied{SlotIndex(0), Done()});
  EXPECT_EQ(Find<SendToAgent>()->command.budget, std::chrono::seconds(25));
}

TEST(Names, AreTheWordsPeopleRead) {
  EXPECT_EQ(ToString(Residue::Complete(WeightVersion(3), {}, {})), "complete(version 3)");
  EXPECT_EQ(ToString(Residue::Unknown()), "unknown");
  EXPECT_EQ(ToString(Operation::kOnloadKvCache), "onload(kv_cache)");
  EXPECT_EQ(ToString(Operation::kRelease), "release");
  EXPECT_EQ(ToString(SessionFamily::kB), "b");
  EXPECT_EQ(ToString(PauseMode::kRetract), "retract");
  for (int kind = 0; kind <= static_cast<int>(Kind::kKill); ++kind) {
    EXPECT_NE(ToString(static_cast<Kind>(kind)), "?");
  }
  for (int phase = 0; phase <= static_cast<int>(SessionPhase::kFinished); ++phase) {
    EXPECT_NE(ToString(static_cast<SessionPhase>(phase)), "?");
  }
}

}  // namespace
}  // namespace refit::sync
