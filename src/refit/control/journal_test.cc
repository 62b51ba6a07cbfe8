// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/control/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace refit::control {
namespace {

using fleet::SlotState;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr RunId kRun{{7, 8}};
constexpr SlotIndex kSlot(2);
constexpr Incarnation kLife{{3, 4}};
constexpr Incarnation kNext{{5, 6}};
constexpr Digest kDigest{{0xab, 0xcd}};
constexpr AttemptId kFirst{Term(1), 1};

IntentRecord Intent(std::string request, std::uint64_t version, AttemptId attempt) {
  return {std::move(request), WeightVersion(version), attempt, "policy-default"};
}
CommitRecord Commit(std::string request, std::uint64_t version, AttemptId attempt = kFirst) {
  return {std::move(request), WeightVersion(version), kDigest, "policy-default", {{kSlot, kLife, attempt}}, {}};
}
OutcomeRecord Outcome(std::string request, std::uint64_t version) {
  return {std::move(request), WeightVersion(version), true, OkStatus()};
}
OutcomeRecord Failure(std::string request, std::uint64_t version) {
  return {std::move(request), WeightVersion(version), false, Unavailable("too few engines")};
}

std::vector<Record> OneOfEach() {
  return {RunRecord{kRun},
          TermRecord{Term(1)},
          SlotRecord{kSlot, kLife, SlotState::kUpdating, "attempt 1:1"},
          BindRecord{kSlot, kLife, {{PolicyRank(0), {{1, 2}}}, {PolicyRank(1), {{3, 3}}}}},
          Intent("a", 1, kFirst),
          AbortedRecord{kFirst, WeightVersion(1), true},
          CommitRecord{"a", WeightVersion(1), kDigest, "dir", {{kSlot, kLife, kFirst}}, {{SlotIndex(3), "no answer"}}},
          OutcomeRecord{"a", WeightVersion(1), true, OkStatus()},
          LatchRecord{Internal("two digests", "look at the source")},
          RetireRecord{SlotIndex(3)},
          ServiceRecord{SlotIndex(4), Service::kLeaving}};
}

// A journal under way: version 1 is published.
class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Add(RunRecord{kRun});
    Add(TermRecord{Term(1)});
    Add(Intent("a", 1, kFirst));
    Add(Commit("a", 1));
    Add(Outcome("a", 1));
  }
  void Add(const Record& record) { EXPECT_EQ(Apply(record, state_), OkStatus()) << ToString(record); }
  void Refuse(const Record& record, const std::string& why) {
    const Status status = Apply(record, state_);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << ToString(record);
    EXPECT_THAT(status.message(), HasSubstr(why));
  }

  JournalState state_;
};

TEST(JournalCodec, EveryRecordComesBackAsItWas) {
  for (const Record& record : OneOfEach()) {
    const Result<Record> back = Decode(Encode(record));
    ASSERT_TRUE(back.ok()) << ToString(record) << back.status().ToString();
    EXPECT_EQ(*back, record);
  }
  for (int code = 0; code <= 15; ++code) {
    const Record record = LatchRecord{Status(static_cast<StatusCode>(code), "why")};
    EXPECT_EQ(Decode(Encode(record)).value(), record);
  }
}

// The format is what files hold: it does not change by accident.
TEST(JournalCodec, TheFormatIsFixed) {
  EXPECT_EQ(Encode(TermRecord{Term(0x0102)}), std::string("\x01\x01\x02\x01\x00\x00", 6));
  EXPECT_EQ(Encode(AbortedRecord{AttemptId{Term(2), 3}, WeightVersion(4), true}),
            std::string("\x01\x05\x03\0\0\0\x02\0\0\0\x04\0\0\0\0\0\0\0\x01", 19));
  EXPECT_EQ(Encode(SlotRecord{SlotIndex(1), {{0, 9}}, SlotState::kZombie, "no"}),
            std::string("\x01\x02\x01\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0a\x02\0\0\0no", 29));
}

// RX-JRNL-02: nothing but what Encode wrote.
TEST(JournalCodec, NoPartOfARecordAndNothingBehindItDecodes) {
  for (const Record& record : OneOfEach()) {
    const std::string payload = Encode(record);
    for (std::size_t size = 0; size < payload.size(); ++size) {
      EXPECT_EQ(Decode(payload.substr(0, size)).status().code(), StatusCode::kDataLoss) << ToString(record) << size;
    }
    EXPECT_EQ(Decode(payload + '\0').status().code(), StatusCode::kDataLoss) << ToString(record);
  }
}

// RX-JRNL-02
TEST(JournalCodec, UnknownFormatsTypesAndValuesAreRefusedByName) {
  std::string format = Encode(TermRecord{Term(1)});
  format[0] = 2;
  EXPECT_THAT(Decode(format).status().message(), HasSubstr("format 2"));
  std::string type = Encode(TermRecord{Term(1)});
  type[1] = 11;
  EXPECT_THAT(Decode(type).status().message(), HasSubstr("unknown type 11"));
  std::string state = Encode(SlotRecord{kSlot, kLife, SlotState::kRetired, ""});
  state[22] = 12;
  EXPECT_THAT(Decode(state).status().message(), AllOf(HasSubstr("SLOT"), HasSubstr("value 12")));
  std::string flag = Encode(AbortedRecord{kFirst, WeightVersion(1), true});
  flag.back() = 2;
  EXPECT_THAT(Decode(flag).status().message(), AllOf(HasSubstr("ABORTED"), HasSubstr("value 2")));
  std::string code = Encode(LatchRecord{Internal("why")});
  code[2] = 16;
  EXPECT_THAT(Decode(code).status().message(), AllOf(HasSubstr("LATCH"), HasSubstr("value 16")));
}

// RX-JRNL-02: a length is believed only if the record has that much.
TEST(JournalCodec, LengthsBeyondTheRecordAreRefusedBeforeAnythingIsReserved) {
  std::string text = Encode(SlotRecord{kSlot, kLife, SlotState::kStale, "why"});
  text[26] = '\xff';
  EXPECT_THAT(Decode(text).status().message(), HasSubstr("a text is longer than the record"));
  std::string list = Encode(BindRecord{kSlot, kLife, {}});
  list[list.size() - 1] = '\xff';
  EXPECT_THAT(Decode(list).status().message(), HasSubstr("a list is longer than the record"));
}

TEST(JournalCodec, RecordsReadAsOneLine) {
  for (const Record& record : OneOfEach()) {
    EXPECT_EQ(ToString(record).find(NameOf(record)), 0U);
  }
  EXPECT_EQ(ToString(Commit("a", 1)),
            "COMMIT request=a version=1 digest=00000000000000ab00000000000000cd source=policy-default "
            "members=2/00000000000000030000000000000004/1:1");
  EXPECT_THAT(ToString(SlotRecord{kSlot, kLife, SlotState::kQuarantined, "two\nlines"}), Not(HasSubstr("\n")));
}

// RX-JRNL-03
TEST(Journal, WhatCouldMakeTwoControllersTellTwoStoriesIsFlushed) {
  std::string durable;
  for (const Record& record : OneOfEach()) {
    durable += MustBeDurable(record) ? std::string(NameOf(record)) + " " : "";
  }
  EXPECT_EQ(durable, "TERM INTENT COMMIT OUTCOME LATCH SERVICE ");
}

// RX-JRNL-04: what a successor starts from.
TEST(Journal, ReplayYieldsWhatAllRecordsTogetherSay) {
  std::vector<std::string> payloads;
  for (const Record& record : OneOfEach()) {
    payloads.push_back(Encode(record));
  }
  const Result<JournalState> state = Replay(payloads);
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_EQ(state->run, kRun);
  EXPECT_EQ(state->term, Term(1));
  EXPECT_EQ(state->attempts, 1U);
  EXPECT_EQ(state->committed, WeightVersion(1));
  EXPECT_EQ(state->digest, kDigest);
  EXPECT_EQ(state->commits.at(WeightVersion(1)).excluded.size(), 1U);
  EXPECT_EQ(state->burned, WeightVersion(1));
  EXPECT_FALSE(state->intent.has_value());
  EXPECT_TRUE(state->outcomes.at("a").committed);
  EXPECT_EQ(state->slots.at(kSlot).incarnation, kLife);
  EXPECT_EQ(state->slots.at(kSlot).state, SlotState::kServing);  // a member of the COMMIT
  EXPECT_EQ(state->slots.at(kSlot).policies.size(), 2U);
  EXPECT_TRUE(state->retired.contains(SlotIndex(3)));
  EXPECT_EQ(state->latch, Internal("two digests", "look at the source"));
}

TEST(Journal, AnEmptyJournalSaysNothing) {
  const Result<JournalState> state = Replay({});
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->term, Term(0));
}

// RX-JRNL-02: a hole is not normal.
TEST(Journal, ReplayStopsAtARecordThatDoesNotDecodeOrContradicts) {
  const std::string run = Encode(RunRecord{kRun});
  const std::string term = Encode(TermRecord{Term(1)});
  EXPECT_THAT(Replay(std::vector{run, std::string("\x01"), term}).status().message(), HasSubstr("record 2: "));
  EXPECT_THAT(Replay(std::vector{run, term, term}).status().message(),
              HasSubstr("record 3: the journal is corrupt: TERM 1 after term 1"));
}

TEST_F(JournalTest, RunIsTheFirstRecordAndTheOnlyOne) {
  Refuse(RunRecord{kRun}, "is not its first record");
  state_ = {};
  Add(TermRecord{Term(1)});
  Refuse(RunRecord{kRun}, "is not its first record");
}

// RX-LEAD-01
TEST_F(JournalTest, TermsOnlyGrow) {
  Refuse(TermRecord{Term(1)}, "TERM 1 after term 1");
  Add(TermRecord{Term(4)});
  EXPECT_EQ(state_.attempts, 0U) << "attempts of a new term are counted from one";
  Refuse(TermRecord{Term(3)}, "TERM 3 after term 4");
}

TEST_F(JournalTest, AttemptsOnlyGrowWithinTheirTerm) {
  Refuse(Intent("b", 2, kFirst), "INTENT of attempt 1:1 after attempt 1:1");
  Refuse(Intent("b", 2, {Term(2), 1}), "INTENT of attempt 2:1");
  Add(AbortedRecord{{Term(1), 5}, WeightVersion(1), false});  // a catch-up's
  Refuse(Intent("b", 2, {Term(1), 5}), "after attempt 1:5");
  Refuse(AbortedRecord{{Term(2), 1}, WeightVersion(2), false}, "ABORTED of attempt 2:1 in term 1");
  Add(TermRecord{Term(2)});
  Refuse(Intent("b", 2, {Term(1), 9}), "INTENT of attempt 1:9");
  Add(AbortedRecord{{Term(1), 9}, WeightVersion(2), true});  // by a successor
  Add(Intent("b", 3, {Term(2), 1}));
}

// RX-ONCE-02: attempts of one request share its number; one that was opened is never somebody else's.
TEST_F(JournalTest, ABurnedNumberBelongsToItsRequestAlone) {
  Add(Intent("b", 2, {Term(1), 2}));
  Add(AbortedRecord{{Term(1), 2}, WeightVersion(2), true});
  EXPECT_EQ(state_.burned, WeightVersion(2));
  Add(Intent("b", 2, {Term(1), 3}));
  Add(Failure("b", 2));
  EXPECT_FALSE(state_.intent.has_value());
  Refuse(Intent("c", 2, {Term(1), 4}), "INTENT of version 2 after version 2");
  Refuse(Intent("c", 1, {Term(1), 4}), "INTENT of version 1");
  Add(Intent("c", 3, {Term(1), 4}));
}

TEST_F(JournalTest, ANumberThatWasNotOpenedIsFree) {
  Add(Intent("b", 2, {Term(1), 2}));
  Add(AbortedRecord{{Term(1), 2}, WeightVersion(2), false});
  Add(Failure("b", 2));
  Add(Intent("c", 2, {Term(1), 3}));
}

// RX-COMMIT-02, INV-3
TEST_F(JournalTest, AVersionIsCommittedOnce) {
  Refuse(Commit("a", 1), "a second COMMIT of version 1");
  EXPECT_EQ(state_.commits.size(), 1U);
}

// RX-ONCE-03, INV-3
TEST_F(JournalTest, AVersionHasOneDigest) {
  CommitRecord other = Commit("a", 1);
  other.digest = {{1, 1}};
  Refuse(other, "version 1 has two digests");
  EXPECT_EQ(state_.digest, kDigest);
}

// RX-JRNL-01: intent before effect.
TEST_F(JournalTest, ACommitHasItsIntent) {
  Refuse(Commit("b", 2), "COMMIT of version 2 for request 'b' without its INTENT");
  Add(Intent("b", 2, {Term(1), 2}));
  Refuse(Commit("b", 3), "without its INTENT");
  Refuse(Commit("c", 2), "without its INTENT");
  Refuse(Commit("b", 2, {Term(1), 3}), "slot 2 of attempt 1:3, which is later than its INTENT");
  Add(Commit("b", 2));
  EXPECT_EQ(state_.committed, WeightVersion(2));
}

// RX-COMMIT-02: an intent of before the last TERM is a superseded controller's.
TEST_F(JournalTest, ACommitIsOfTheTermOfItsIntent) {
  Add(Intent("b", 2, {Term(1), 2}));
  Add(TermRecord{Term(2)});
  Refuse(Commit("b", 2, {Term(1), 2}), "in term 2 for an INTENT of term 1");
  Add(Intent("b", 2, {Term(2), 1}));
  Add(Commit("b", 2, {Term(1), 2}));
}

// RX-ONCE-01, INV-7
TEST_F(JournalTest, ARequestHasOneOutcome) {
  Refuse(Outcome("a", 1), "a second OUTCOME of request 'a'");
  Refuse(Intent("a", 2, {Term(1), 2}), "INTENT of request 'a', which has its OUTCOME");
}

// INV-7: an outcome says what the journal says.
TEST_F(JournalTest, AnOutcomeNeitherDeniesNorInventsACommit) {
  Add(Intent("b", 2, {Term(1), 2}));
  Refuse(Outcome("b", 2), "was committed, and there is no COMMIT");
  Add(Commit("b", 2));
  Refuse(Failure("b", 2), "was not committed, and it was");
  Add(Outcome("b", 2));
  Add(Failure("c", 0));  // refused before it had a number
}

// RX-QUAR-03, RX-MEM-05
TEST_F(JournalTest, NeitherALifeNorASlotGoesOnAfterItsEnd) {
  Add(SlotRecord{kSlot, kLife, SlotState::kServing, ""});
  Add(BindRecord{kSlot, kLife, {{PolicyRank(0), {{1, 2}}}}});
  Add(SlotRecord{kSlot, kLife, SlotState::kQuarantined, "probes failed"});
  Add(SlotRecord{kSlot, kLife, SlotState::kKilling, ""});
  Refuse(SlotRecord{kSlot, kLife, SlotState::kServing, ""}, "slot 2 is serving in the life");
  EXPECT_EQ(state_.slots.at(kSlot).policies.size(), 1U);
  Add(SlotRecord{kSlot, {}, SlotState::kLaunching, ""});
  Add(SlotRecord{kSlot, kNext, SlotState::kStale, ""});
  EXPECT_TRUE(state_.slots.at(kSlot).policies.empty()) << "links are those of a life";
  Add(RetireRecord{kSlot});
  Add(SlotRecord{kSlot, kNext, SlotState::kRetired, ""});
  Refuse(SlotRecord{kSlot, {}, SlotState::kLaunching, ""}, "slot 2 is launching after it was retired");
}

// RC-TERM-02
TEST_F(JournalTest, TheFirstLatchStays) {
  Add(LatchRecord{Internal("first")});
  Add(LatchRecord{Internal("second")});
  EXPECT_EQ(state_.latch, Internal("first"));
}

}  // namespace
}  // namespace refit::control
