// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The journal's gate, the controller that comes after, and the one that has been superseded (contract §II.9 … §II.11).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "refit/base/str.h"
#include "tests/support/fleet_expect.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {
namespace {

using fleet::SlotState;
using std::chrono::seconds;
using sync::Operation;
using sync::ResidueKind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = sync::AgentCommandKind;

constexpr Kind kSteps[] = {Kind::kAttempt,  Kind::kPause, Kind::kFlush,   Kind::kBegin,
                           Kind::kTransfer, Kind::kEnd,   Kind::kActivate};

// Runs a sync until that command goes out to engine 0; it is lost, and with it the controller that sent it.
void StopAt(FleetRig& rig, Kind at) {
  rig.on_agent_command = [at, stopped = false](SlotIndex slot, const sync::AgentCommand& command) mutable {
    stopped = stopped || (slot == SlotIndex(0) && command.kind == at);
    return !stopped;
  };
  rig.Request("lost");
  rig.RunUntilQuiet();
  rig.on_agent_command = nullptr;
}

// RX-JRNL-01: intent before effect. Nothing of a refit leaves before INTENT is confirmed, no activation before COMMIT,
// no answer before OUTCOME.
TEST(Journal, NothingLeavesBeforeItsRecordIsConfirmed) {
  for (const std::string held : {"INTENT", "COMMIT", "OUTCOME"}) {
    SCOPED_TRACE(held);
    FleetRig rig({});
    rig.RunUntilQuiet();
    rig.ClearTrace();
    rig.on_append = [&held](const control::Record& record) {
      return control::NameOf(record) == held ? std::nullopt : std::optional(OkStatus());
    };
    rig.Request("r");
    rig.RunUntilQuiet();
    EXPECT_EQ(rig.traced(StrCat("append ", held)), 1);
    EXPECT_EQ(rig.traced("0 attempt") > 0, held != "INTENT");
    EXPECT_EQ(rig.traced("policy 0 lease") > 0, held != "INTENT");
    EXPECT_EQ(rig.traced("0 activate") > 0, held == "OUTCOME");
    EXPECT_EQ(rig.traced("answer"), 0);
  }
}

// RX-JRNL-01: a life is named before it is launched, and its end before it is killed.
TEST(Journal, LaunchesAndKillsStandBehindTheirRecords) {
  FleetRig rig({.engines = 1, .policies = 1, .use_fault_tolerance = true});
  ASSERT_TRUE(rig.Sync().status.ok());
  for (const bool launch : {false, true}) {
    rig.ClearTrace();
    rig.on_append = [launch](const control::Record& record) -> std::optional<Status> {
      const auto* slot = std::get_if<control::SlotRecord>(&record);
      const SlotState state = launch ? SlotState::kLaunching : SlotState::kQuarantined;
      return slot != nullptr && slot->state == state ? std::nullopt : std::optional(OkStatus());
    };
    rig.LoseAgent(0);
    rig.RunFor(seconds(10));
    EXPECT_EQ(rig.traced("0 launch"), 0);
    EXPECT_EQ(rig.traced("0 hard kill"), 0);
    rig.on_append = nullptr;
    if (launch) {
      break;
    }
    rig.TakeOver();
    rig.RunFor(seconds(60));
    ASSERT_EQ(rig.state(0), SlotState::kStale);
  }
}

// RX-JRNL-03: a failed or late record that must be durable is ambiguous, and is not tried again.
TEST(Journal, ADoubtfulRecordStopsTheController) {
  for (const bool late : {false, true}) {
    for (const std::string doubtful : {"INTENT", "COMMIT", "OUTCOME", "LATCH"}) {
      SCOPED_TRACE(StrCat(doubtful, late ? " is late" : " fails"));
      FleetRig rig({.profile = sync::kStrict, .append_deadline = seconds(5)});
      if (doubtful == "LATCH") {
        rig.engine(0).SetFault(Operation::kUpdate, {});
      }
      rig.on_append = [&](const control::Record& record) -> std::optional<Status> {
        if (control::NameOf(record) != doubtful) {
          return OkStatus();
        }
        return late ? std::nullopt : std::optional<Status>(Unavailable("disk full"));
      };
      const control::SyncAnswered answer = rig.Sync();
      EXPECT_THAT(answer.status.message(), HasSubstr("IN_DOUBT"));
      EXPECT_FALSE(answer.outcome.has_value());
      EXPECT_EQ(rig.exit_code(), control::kExitJournalInDoubt);
      EXPECT_EQ(rig.traced(StrCat("append ", doubtful)), 1);
      rig.ClearTrace();
      rig.Request("again");
      rig.RunFor(seconds(60));
      EXPECT_THAT(rig.trace(), IsEmpty());  // it does not act any more
      EXPECT_EQ(rig.controller().next_deadline(), kNever);
    }
  }
}

// RX-JRNL-04, row 1: what serves, goes on; nothing is restarted and nothing is called.
TEST(Successor, LeavesWhatServesAlone) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  const std::size_t calls = rig.log().size();
  rig.TakeOver();
  rig.RunFor(seconds(10));
  EXPECT_EQ(rig.log().size(), calls);
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    EXPECT_EQ(rig.state(slot), SlotState::kServing);
    EXPECT_TRUE(rig.engine(slot).serves(WeightVersion(1)));
    EXPECT_EQ(rig.traced(StrCat(slot, " abort")), 1);  // every agent is asked
  }
  EXPECT_EQ(rig.Sync().outcome->version, WeightVersion(2));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-JRNL-04, rows 2 and 3 and 5: whatever command was the last one, on every family, the fleet comes back with one
// more sync, nobody is resumed with a mix, and the decision stands if there was one.
TEST(Successor, BringsTheFleetBackFromEveryPlaceWhereItsPredecessorStopped) {
  for (const sync::SessionFamily family : kFamilies) {
    for (const Kind at : kSteps) {
      SCOPED_TRACE(StrCat("family ", ToString(family), ", at ", ToString(at)));
      FleetRig rig({.family = family});
      ASSERT_TRUE(rig.Sync().status.ok());
      StopAt(rig, at);
      rig.TakeOver();
      rig.RunFor(seconds(30));
      const bool decided = at == Kind::kActivate;
      EXPECT_EQ(rig.controller().committed(), WeightVersion(decided ? 2 : 1));
      for (std::uint32_t slot = 0; slot < 2; ++slot) {
        ExpectResidueTable(rig, slot);
        if (at < Kind::kTransfer || decided) {
          EXPECT_TRUE(rig.engine(slot).serves(rig.controller().committed())) << slot;
          EXPECT_EQ(rig.state(slot), SlotState::kServing) << slot;
        } else if (at == Kind::kEnd) {
          EXPECT_FALSE(rig.engine(slot).generates());
        }
      }
      ExpectNextSyncWorks(rig, 2);
      EXPECT_THAT(rig.Violations(), IsEmpty());
    }
  }
}

// RX-JRNL-04, INV-2: a life that serves what is published and is found while a refit runs takes no part in it. Were it
// routed now, the next version would be published past it.
TEST(Successor, DoesNotRouteWhomItFindsInMidRefit) {
  FleetRig rig({.engines = 3, .policies = 3, .use_router = true});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.LoseAgent(2);
  rig.RunFor(seconds(2));
  rig.hold_loads = true;
  rig.Request("r");
  rig.RunFor(seconds(1));
  ASSERT_EQ(rig.controller().phase(), sync::SessionPhase::kTransferring);
  const Incarnation found{{1, 77}};
  const sync::Residue residue = sync::Residue::Old(WeightVersion(1), Digest{{5, 5}});
  rig.Deliver(control::AgentRegistered{{.slot = SlotIndex(2),
                                        .incarnation = found,
                                        .residue = residue,
                                        .serving = true,
                                        .attempt = AttemptId{Term(4), 1}}});
  rig.RunUntilQuiet();
  sync::AgentReply reply{.stamp = rig.commands(2).back().stamp,
                         .kind = sync::ReplyKind::kDone,
                         .status = {},
                         .residue = residue,
                         .totals = {}};
  ASSERT_EQ(reply.stamp.incarnation, found);
  reply.serving = true;
  rig.Deliver(sync::SessionEvent{sync::AgentReplied{SlotIndex(2), reply}});
  rig.RunFor(seconds(3));
  EXPECT_EQ(rig.state(2), SlotState::kStale);
  EXPECT_EQ(rig.router().size(), 2U);
}

// RX-JRNL-04, row 4.
TEST(Successor, EndsALifeWhoseContentsNobodyKnows) {
  FleetRig rig({.engines = 2, .policies = 2, .use_fault_tolerance = true});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.KillServer(0);
  rig.RunUntilQuiet();
  const Incarnation life = rig.incarnation(0);
  rig.TakeOver();
  rig.RunFor(seconds(60));
  EXPECT_NE(rig.incarnation(0), life);
  EXPECT_EQ(rig.state(1), SlotState::kServing);
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-JRNL-04, RX-COMMIT-04: a member's (V, e, digest, incarnation), or no activation.
TEST(Successor, DoesNotActivateWhatHoldsOtherWeights) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  StopAt(rig, Kind::kActivate);
  rig.on_agent_reply = [&rig](SlotIndex slot, const sync::AgentReply& reply) {
    if (slot == SlotIndex(0) && reply.stamp.term == Term(5) && reply.residue.digest == Digest{{5, 5}}) {
      sync::AgentReply other = reply;
      other.residue.digest = Digest{{6, 6}};
      rig.Deliver(sync::SessionEvent{sync::AgentReplied{slot, other}});
      return false;
    }
    return true;
  };
  rig.TakeOver();
  rig.RunFor(seconds(30));
  EXPECT_FALSE(rig.engine(0).generates());
  EXPECT_FALSE(fleet::IsLive(rig.state(0)));
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(2)));
}

// RX-JRNL-04: what is behind and what is new is never resumed; it waits for the next refit.
TEST(Successor, DoesNotWakeWhatIsBehind) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.engine(0).SetFault(Operation::kFlush, {.times = 1000});
  ASSERT_TRUE(rig.Sync().status.ok());  // engine 0 is held at version 1
  rig.TakeOver();
  rig.RunFor(seconds(30));
  EXPECT_FALSE(rig.engine(0).generates());
  EXPECT_EQ(rig.state(0), SlotState::kStale);
  EXPECT_TRUE(rig.engine(1).serves(WeightVersion(2)));
  rig.engine(0).ClearFaults();
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_TRUE(rig.engine(0).serves(WeightVersion(3)));
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-RTR-04: whoever sends requests notices nothing of a takeover.
TEST(Successor, LeavesItsMembersInTheRouterWhileItHearsThem) {
  FleetRig rig({.use_router = true});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.RunFor(seconds(5));
  ASSERT_TRUE(rig.routed(0) && rig.routed(1));
  rig.Partition(1);
  rig.ClearTrace();
  rig.TakeOver();
  rig.RunFor(seconds(5));
  EXPECT_TRUE(rig.routed(0) && rig.routed(1));
  EXPECT_EQ(rig.traced("router delete 0") + rig.traced("router delete 1"), 0);
  rig.RunFor(seconds(60));
  EXPECT_TRUE(rig.routed(0));
  EXPECT_FALSE(rig.routed(1));  // nobody knows what becomes of it
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RX-JRNL-04: no answer means excluded: out of the router first, then its slot is launched anew.
TEST(Successor, TreatsALifeThatDoesNotAnswerAsExcluded) {
  FleetRig rig({.use_fault_tolerance = true, .use_router = true});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.RunFor(seconds(5));
  ASSERT_TRUE(rig.routed(0));
  rig.Partition(0);
  rig.TakeOver();
  rig.RunFor(seconds(60));
  EXPECT_EQ(rig.state(0), SlotState::kStale);
  EXPECT_LT(rig.traced_at("router delete 0"), rig.traced_at("0 hard kill"));
  EXPECT_TRUE(rig.Sync().status.ok());
  EXPECT_THAT(rig.Violations(), IsEmpty());
}

// RC-TERM-07.
TEST(Successor, StaysLatched) {
  FleetRig rig({.profile = sync::kStrict});
  rig.engine(0).SetFault(Operation::kUpdate, {});
  EXPECT_TRUE(rig.Sync().outcome->latch);
  const std::size_t calls = rig.log().size();
  rig.TakeOver();
  ASSERT_TRUE(rig.controller().latch().has_value());
  const control::SyncAnswered refused = rig.Sync();
  EXPECT_THAT(refused.status.message(), HasSubstr("terminal"));
  EXPECT_THAT(refused.status.message(), HasSubstr("update refused"));
  EXPECT_EQ(rig.log().size(), calls);
}

// RX-ONCE-01, INV-7: an outcome outlives its controller.
TEST(Successor, AnswersARequestThatWasAnsweredWithoutAnyWork) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync("r").status.ok());
  rig.TakeOver();
  rig.RunFor(seconds(5));
  const std::size_t calls = rig.log().size();
  EXPECT_TRUE(rig.Sync("r").status.ok());
  EXPECT_EQ(rig.log().size(), calls);
  EXPECT_EQ(rig.controller().committed(), WeightVersion(1));
}

// RX-COMMIT-10, RX-JRNL-03: in doubt, and the same id gets the answer: success if the record is there, else a new try.
TEST(Successor, TellsTheSameRequestWhatBecameOfADoubtfulCommit) {
  for (const bool written : {false, true}) {
    SCOPED_TRACE(written ? "written" : "not written");
    FleetRig rig({});
    ASSERT_TRUE(rig.Sync().status.ok());
    rig.answer_commit = false;
    rig.lose_written = written;
    EXPECT_THAT(rig.Sync("doubt").status.message(), HasSubstr("IN_DOUBT"));
    rig.answer_commit = true;
    rig.lose_written = false;
    rig.TakeOver();
    rig.RunFor(seconds(10));
    EXPECT_EQ(rig.engine(0).generates(), written);
    EXPECT_TRUE(rig.Sync("doubt").status.ok());
    EXPECT_EQ(rig.controller().committed(), WeightVersion(written ? 2 : 3));  // RX-ONCE-02: 2 was opened
    EXPECT_EQ(rig.commits().size(), 2U);
    EXPECT_TRUE(rig.engine(0).serves(rig.controller().committed()));
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

// RX-LEAD-02, -04, INV-4: who was frozen and goes on is refused by everybody, writes nothing and stops.
TEST(Superseded, AControllerThatIsRefusedStopsAtOnce) {
  for (const Kind at : kSteps) {
    SCOPED_TRACE(ToString(at));
    FleetRig rig({});
    ASSERT_TRUE(rig.Sync().status.ok());
    StopAt(rig, at);
    rig.TakeOver();
    rig.RunFor(seconds(30));
    const std::size_t records = rig.journal().size();
    const WeightVersion committed = rig.controller().committed();
    const std::size_t calls = rig.log().size();
    rig.ThawFormer();
    rig.RunFor(seconds(120));
    EXPECT_NE(rig.former_exit_code(), 0);
    EXPECT_EQ(rig.journal().size(), records);
    EXPECT_EQ(rig.log().size(), calls);
    EXPECT_EQ(rig.controller().committed(), committed);
    EXPECT_TRUE(rig.Sync().status.ok());
    EXPECT_THAT(rig.Violations(), IsEmpty());
  }
}

// RX-LEAD-04: with a code of its own.
TEST(Superseded, AStaleAnswerOfAHigherTermStopsWithItsOwnCode) {
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.Request("r");
  rig.on_agent_reply = [&](SlotIndex slot, const sync::AgentReply& reply) {
    sync::AgentReply stale = reply;
    stale.kind = sync::ReplyKind::kStale;
    stale.highest_term = Term(9);
    rig.Deliver(sync::SessionEvent{sync::AgentReplied{slot, stale}});
    return false;
  };
  rig.RunUntilQuiet();
  EXPECT_EQ(rig.exit_code(), control::kExitSuperseded);
  EXPECT_THAT(rig.commits(), ::testing::SizeIs(1));
  EXPECT_EQ(rig.traced("append ABORTED"), 0);
  EXPECT_EQ(rig.traced("append OUTCOME"), 1);  // of the sync before
}

// RX-ID-03, -04: a life that began after the takeover has never heard of the old term, and obeys it no more than
// others.
TEST(Superseded, ALifeOfTheNewTermDoesNotObeyTheOldOne) {  // S62
  FleetRig rig({});
  ASSERT_TRUE(rig.Sync().status.ok());
  rig.TakeOver();
  rig.RunFor(seconds(1));
  rig.Launch(0);
  rig.RunUntilQuiet();
  const std::size_t calls = rig.log().size();
  rig.ThawFormer();
  sync::EngineMember member{SlotIndex(0), rig.incarnation(0), 1, sync::Residue::Old(WeightVersion(0))};
  rig.DeliverToFormer(control::AgentRegistered{member});  // even if the old one heard of it
  rig.DeliverToFormer(control::SyncRequested{"old", "", seconds(60)});
  rig.RunFor(seconds(120));
  EXPECT_EQ(rig.log().size(), calls);
  EXPECT_NE(rig.former_exit_code(), 0);
  EXPECT_THAT(rig.engine(0).calls(), IsEmpty());
}

// RX-JRNL-05: members find a successor by themselves, and a request that comes before them is not refused.
TEST(Successor, WaitsForThoseWhoHaveNotFoundItYet) {
  for (const bool comes : {true, false}) {
    SCOPED_TRACE(comes);
    FleetRig rig({.engines = 1, .policies = 2});
    ASSERT_TRUE(rig.Sync().status.ok());
    rig.LosePolicy(1);
    rig.TakeOver();
    rig.ClearTrace();
    rig.Request("early");
    rig.RunFor(seconds(9));
    EXPECT_EQ(rig.traced("answer"), 0);
    if (comes) {
      rig.JoinPolicy(1);
    }
    rig.RunFor(seconds(2));
    ASSERT_EQ(rig.traced("answer"), 1);
    EXPECT_EQ(rig.TakeAnswers().back().status.ok(), comes);
  }
}

// RX-ONCE-05: committed versions are the requests with a COMMIT; activations are memberships less those that ended.
TEST(Accounting, VersionsRequestsAndActivationsAddUp) {
  FleetRig rig({.engines = 3, .policies = 3});
  int activations = 0;
  std::set<std::pair<SlotIndex, CommandSeq>> asked;
  rig.on_agent_command = [&](SlotIndex slot, const sync::AgentCommand& command) {
    if (command.kind == Kind::kActivate) {
      asked.emplace(slot, command.stamp.seq);
    }
    return true;
  };
  rig.on_agent_reply = [&](SlotIndex slot, const sync::AgentReply& reply) {
    const bool activated = reply.kind == sync::ReplyKind::kDone && asked.contains({slot, reply.stamp.seq});
    activations += activated ? 1 : 0;
    return true;
  };
  for (int round = 0; round < 6; ++round) {
    if (round % 2 == 1) {
      rig.engine(round % 3 == 0 ? 0 : 1).SetFault(Operation::kUpdate, {});
    }
    EXPECT_TRUE(rig.Sync().status.ok());
  }
  std::set<std::string> requests;
  std::size_t members = 0;
  for (const control::CommitRecord& commit : rig.commits()) {
    requests.insert(commit.request_id);
    members += commit.members.size();
  }
  EXPECT_EQ(requests.size(), rig.commits().size());
  EXPECT_EQ(rig.journal_state().commits.size(), requests.size());
  EXPECT_EQ(rig.journal_state().outcomes.size(), 6U);
  EXPECT_EQ(static_cast<std::size_t>(activations), members);
  EXPECT_EQ(members, 15U);
}

}  // namespace
}  // namespace refit::testing
