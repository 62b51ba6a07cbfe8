// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What outlives controllers, wherever it is kept: what was acknowledged is there, and nobody writes under a term that
// is over.

#include "refit/store/store.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/store/store_test_records.h"
#include "tests/support/etcd_process.h"
#include "tests/support/temp_folder.h"

namespace refit::store {
namespace {

using control::OutcomeRecord;
using control::Record;

class StoreTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "etcd") {
      if (!test::HasEtcd()) {
        GTEST_SKIP() << test::kNoEtcd;
      }
      etcd_.emplace();
    }
  }

  std::string place() const { return etcd_.has_value() ? etcd_->place() : folder_ / "state"; }
  std::unique_ptr<Store> Open() const {
    auto store = Store::Open(place());
    EXPECT_TRUE(store.has_value()) << store.status().ToString();
    return store.has_value() ? *std::move(store) : nullptr;
  }

 private:
  const test::TempFolder folder_;
  std::optional<test::EtcdProcess> etcd_;
};

INSTANTIATE_TEST_SUITE_P(Kept, StoreTest, testing::Values("sqlite", "etcd"),
                         [](const auto& kind) { return kind.param; });

TEST_P(StoreTest, WhoeverLooksForTheHolderFindsNobodyBeforeTheFirstOne) {
  EXPECT_EQ(Store::OpenExisting(place()).status().code(), StatusCode::kNotFound);
}

TEST_P(StoreTest, WhatWasAppendedIsReadAgainInOrder) {
  std::vector<Record> expected;
  {
    const auto store = Open();
    const Term term = Take(*store);
    EXPECT_EQ(term, Term(1));
    expected = {control::RunRecord{kRun},
                control::TermRecord{term},
                Intent(term, 1),
                Commit(1),
                control::SlotRecord{SlotIndex(2), Incarnation{{1, 2}}, fleet::SlotState::kServing, "why\0not"},
                OutcomeRecord{"r1", WeightVersion(1), true, OkStatus()}};
    for (std::size_t i = 2; i < expected.size(); ++i) {
      const Status appended = store->Append(term, expected[i]);
      EXPECT_TRUE(appended.ok()) << appended.ToString();
    }
  }
  const auto store = Open();
  EXPECT_EQ(Records(*store), expected);
  const auto state = control::Replay(*store->ReadRecords());
  ASSERT_TRUE(state.has_value()) << state.status().ToString();
  EXPECT_EQ(state->run, kRun);
  EXPECT_EQ(state->committed, WeightVersion(1));
}

// RX-LEAD-01: every term is greater than any before, and one of two who saw the same holder gets it.
TEST_P(StoreTest, ATermIsTakenOnce) {
  const auto first = Open();
  const auto second = Open();
  ASSERT_TRUE(first->TakeTerm(Term(0), {.pid = 1}, kRun).has_value());
  EXPECT_EQ(second->TakeTerm(Term(0), {.pid = 2}, kRun).status().code(), StatusCode::kAborted);
  EXPECT_EQ(first->ReadHolder()->pid, 1);
  EXPECT_EQ(*second->TakeTerm(Term(1), {.pid = 2}, RunId{{9, 9}}), Term(2));
  EXPECT_EQ(Records(*second), (std::vector<Record>{control::RunRecord{kRun}, control::TermRecord{Term(1)},
                                                   control::TermRecord{Term(2)}}));
}

// RX-LEAD-02, -04: the term is compared in the transaction that writes.
TEST_P(StoreTest, WhoeverWasTakenOverFromWritesNothingAnyMore) {
  const auto old_one = Open();
  const Term old_term = Take(*old_one);
  const auto new_one = Open();
  const Term new_term = Take(*new_one);
  EXPECT_EQ(old_one->Append(old_term, Intent(old_term, 1)).code(), StatusCode::kAborted);
  EXPECT_EQ(old_one->Announce(old_term, "here:1").code(), StatusCode::kAborted);
  EXPECT_EQ(old_one->Release(old_term).code(), StatusCode::kAborted);
  EXPECT_TRUE(new_one->Append(new_term, Intent(new_term, 1)).ok());
  EXPECT_TRUE(new_one->Announce(new_term, "there:2").ok());
  EXPECT_EQ(Records(*old_one).size(), 4U);
  EXPECT_EQ(old_one->ReadHolder()->address, "there:2");
}

// RX-COMMIT-02
TEST_P(StoreTest, AVersionIsCommittedOnce) {
  const auto store = Open();
  const Term term = Take(*store);
  EXPECT_TRUE(store->Append(term, Commit(7)).ok());
  const Status again = store->Append(term, Commit(7));
  EXPECT_EQ(again.code(), StatusCode::kAlreadyExists) << again.ToString();
  EXPECT_TRUE(store->Append(term, Commit(8)).ok());
  EXPECT_EQ(Records(*store).size(), 4U);
}

TEST_P(StoreTest, WhoeverEndsByItselfSaysSo) {
  const auto store = Open();
  const Term term = Take(*store);
  ASSERT_TRUE(store->Announce(term, "here:1").ok());
  EXPECT_EQ(Store::OpenExisting(place()).value()->ReadHolder()->address, "here:1");
  ASSERT_TRUE(store->Release(term).ok());
  EXPECT_EQ(store->ReadHolder()->pid, 0);
  EXPECT_EQ(store->ReadHolder()->address, "");
  EXPECT_EQ(store->ReadHolder()->term, term);
}

}  // namespace
}  // namespace refit::store
