// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/peer/policy_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace refit::peer {
namespace {

using sync::PolicyCommand;
using sync::ReplyKind;
using ::testing::HasSubstr;
using Kind = sync::PolicyCommandKind;

constexpr RunId kRun{{1, 1}};
constexpr Incarnation kLife{{2, 2}};

class PolicyAgentTest : public ::testing::Test {
 protected:
  PolicyCommand Command(Kind kind, std::uint32_t attempt = 1) {
    PolicyCommand command;
    command.stamp = {kRun, Term(5), CommandSeq(++seq_), {Term(5), attempt}, WeightVersion(1), kLife};
    command.kind = kind;
    command.budget = std::chrono::seconds(10);
    return command;
  }
  void Give(const PolicyAgentEvent& event) {
    effects_.clear();
    agent_.Handle(event, now_, effects_);
  }
  void Give(Kind kind, std::uint32_t attempt = 1) { Give(PolicyCommandArrived{Command(kind, attempt)}); }
  void Lease() {
    Give(Kind::kLease);
    Give(SourceOpened{{Term(5), 1}, OkStatus(), nullptr});
  }
  void Deadline(Duration after) {
    now_ += after;
    effects_.clear();
    agent_.HandleDeadline(now_, effects_);
  }
  template <typename T>
  int Count() {
    int count = 0;
    for (const PolicyAgentEffect& effect : effects_) {
      count += std::holds_alternative<T>(effect) ? 1 : 0;
    }
    return count;
  }
  const sync::PolicyReply& Reply(std::size_t index = 0) {
    for (const PolicyAgentEffect& effect : effects_) {
      if (const auto* reply = std::get_if<SendPolicyReply>(&effect)) {
        if (index-- == 0) {
          return reply->reply;
        }
      }
    }
    static const sync::PolicyReply kNone{};
    ADD_FAILURE() << "no such reply";
    return kNone;
  }

  PolicyAgent agent_{{PolicyRank(0), kLife, kRun, Term(5)}};
  PolicyAgentEffects effects_;
  Instant now_{std::chrono::seconds(100)};
  std::uint64_t seq_ = 0;
};

TEST_F(PolicyAgentTest, LeaseSendReleaseInTheirOrder) {
  Give(Kind::kLease);
  EXPECT_EQ(Count<OpenSource>(), 1);
  Give(SourceOpened{{Term(5), 1}, OkStatus(), nullptr});
  EXPECT_EQ(Reply().kind, ReplyKind::kDone);
  Give(Kind::kSend);
  EXPECT_EQ(Count<StartSend>(), 1);
  Give(SendEnded{{Term(5), 1}, OkStatus(), Digest{{4, 4}}, {2, 1, 20}});
  EXPECT_EQ(Reply().digest, (Digest{{4, 4}}));
  EXPECT_EQ(Reply().totals.bytes, 20U);
  Give(Kind::kRelease);
  EXPECT_EQ(Count<CloseSource>(), 1);
  EXPECT_EQ(agent_.phase(), PolicyPhase::kIdle);
}

// RX-XFER-08: a retry is a later attempt under the lease of the first one; an earlier one is none of its attempts.
TEST_F(PolicyAgentTest, ASendWithoutALeaseIsStaleAndALaterAttemptIsUnderTheSameLease) {
  Give(Kind::kSend);
  EXPECT_EQ(Reply().kind, ReplyKind::kStale);
  Lease();
  Give(Kind::kSend, 0);
  EXPECT_EQ(Reply().kind, ReplyKind::kStale);
  EXPECT_EQ(Count<StartSend>(), 0);
  Give(Kind::kSend, 2);
  EXPECT_EQ(Count<StartSend>(), 1);
  Give(SendEnded{{Term(5), 2}, OkStatus(), {}, {}});
  Give(Kind::kSend, 1);  // it has gone on
  EXPECT_EQ(Reply().kind, ReplyKind::kStale);
}

TEST_F(PolicyAgentTest, EveryFieldOfTheStampIsChecked) {
  PolicyCommand command = Command(Kind::kLease);
  command.stamp.run = RunId{{9, 9}};
  Give(PolicyCommandArrived{command});
  EXPECT_THAT(Reply().status.message(), HasSubstr("run"));
  command = Command(Kind::kLease);
  command.stamp.incarnation = Incarnation{{9, 9}};
  Give(PolicyCommandArrived{command});
  EXPECT_THAT(Reply().status.message(), HasSubstr("incarnation"));
  command = Command(Kind::kLease);
  command.stamp.term = Term(4);
  Give(PolicyCommandArrived{command});
  EXPECT_THAT(Reply().status.message(), HasSubstr("term 4"));
  command = Command(Kind::kLease);
  Give(PolicyCommandArrived{command});
  Give(PolicyCommandArrived{command});
  EXPECT_THAT(Reply().status.message(), HasSubstr("accepted already"));
}

TEST_F(PolicyAgentTest, ASourceThatFailsToOpenSaysWhy) {
  Give(Kind::kLease);
  Give(SourceOpened{{Term(5), 1}, NotFound("no such folder"), nullptr});
  EXPECT_EQ(Reply().kind, ReplyKind::kFailed);
  EXPECT_EQ(Reply().status.message(), "no such folder");
  EXPECT_EQ(agent_.phase(), PolicyPhase::kIdle);
}

// RX-XFER-13: stop sending, iterate to the end, only then FENCED.
TEST_F(PolicyAgentTest, AnAbortIsConfirmedWhenTheSourceHasReturned) {  // S29
  Lease();
  Give(Kind::kSend);
  Give(Kind::kAbort);
  EXPECT_EQ(Count<StopSend>(), 1);
  EXPECT_EQ(Count<SendPolicyReply>(), 0);
  Give(SendEnded{{Term(5), 1}, OkStatus(), {}, {}});
  EXPECT_EQ(Reply(0).kind, ReplyKind::kFailed);
  EXPECT_EQ(Reply(0).status.code(), StatusCode::kAborted);
  EXPECT_EQ(Reply(1).kind, ReplyKind::kDone);
  EXPECT_EQ(agent_.phase(), PolicyPhase::kLeased);
}

TEST_F(PolicyAgentTest, ASourceThatDoesNotReturnIsReportedAsBlocked) {
  Lease();
  Give(Kind::kSend);
  Deadline(std::chrono::seconds(9));
  EXPECT_EQ(Count<SendPolicyReply>(), 0);
  Deadline(std::chrono::seconds(1));
  EXPECT_THAT(Reply().status.message(), HasSubstr("source blocked"));
  EXPECT_EQ(Count<StopSend>(), 1);
  Give(Kind::kLease, 2);
  EXPECT_THAT(Reply().status.message(), HasSubstr("source blocked"));
  Give(Kind::kRelease);
  Deadline(std::chrono::seconds(10));
  EXPECT_THAT(Reply().status.message(), HasSubstr("source blocked"));
  Give(SendEnded{{Term(5), 1}, OkStatus(), {}, {}});
  EXPECT_EQ(Count<CloseSource>(), 1);  // it came back at last
  Give(Kind::kLease, 2);
  EXPECT_EQ(Count<OpenSource>(), 1);
}

TEST_F(PolicyAgentTest, ASourceThatOpensTooLateIsClosedAgain) {
  Give(Kind::kLease);
  Deadline(std::chrono::seconds(10));
  EXPECT_THAT(Reply().status.message(), HasSubstr("source blocked"));
  Give(SourceOpened{{Term(5), 1}, OkStatus(), nullptr});
  EXPECT_EQ(Count<CloseSource>(), 1);
}

TEST_F(PolicyAgentTest, ANewLeaseClosesTheSourceOfTheOldOne) {
  Lease();
  Give(Kind::kLease, 2);
  ASSERT_EQ(effects_.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<CloseSource>(effects_[0]));
  EXPECT_TRUE(std::holds_alternative<OpenSource>(effects_[1]));
}

TEST_F(PolicyAgentTest, AnAbortWhileTheSourceOpensGivesTheLeaseUp) {
  Give(Kind::kLease);
  Give(Kind::kAbort);
  Give(SourceOpened{{Term(5), 1}, OkStatus(), nullptr});
  EXPECT_EQ(Reply(0).status.code(), StatusCode::kAborted);
  EXPECT_EQ(Reply(1).kind, ReplyKind::kDone);
  EXPECT_EQ(Count<CloseSource>(), 1);
}

TEST_F(PolicyAgentTest, OnlyOneSendAtATime) {
  Lease();
  Give(Kind::kSend);
  Give(Kind::kSend);
  EXPECT_EQ(Reply().kind, ReplyKind::kStale);
  EXPECT_EQ(agent_.next_deadline(), now_ + std::chrono::seconds(10));
}

}  // namespace
}  // namespace refit::peer
