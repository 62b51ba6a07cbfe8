// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// etcd that is silent, dead, or was written to by somebody else.

#include "refit/store/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/store/store_test_records.h"
#include "tests/support/etcd_process.h"

namespace refit::store {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(EtcdPlace, IsAUrlOfEndpointsAndAPrefix) {
  const auto place = ParseEtcdPlace("etcd://10.0.0.1:2379,etcd-2:2379/refit/smol/");
  ASSERT_TRUE(place.has_value()) << place.status().ToString();
  EXPECT_THAT(place->endpoints, ElementsAre("10.0.0.1:2379", "etcd-2:2379"));
  EXPECT_EQ(place->prefix, "/refit/smol");
  EXPECT_EQ(ParseEtcdPlace("etcd://[::1]:2379/smol")->endpoints[0], "[::1]:2379");
  for (const std::string wrong : {"etcd://", "etcd://host/smol", "etcd://host:1", "etcd://host:1/", "etcd://:1/smol",
                                  "etcd://host:/smol", "etcd://host:1,/smol", "etcd:///smol", "/var/lib/refit"}) {
    const Status status = ParseEtcdPlace(wrong).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(status.remedy(), HasSubstr("etcd://HOST:PORT"));
  }
}

class EtcdStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::HasEtcd()) {
      GTEST_SKIP() << test::kNoEtcd;
    }
    etcd_ = std::make_unique<test::EtcdProcess>();
    store_ = std::move(Store::Open(etcd_->place()).value());
    term_ = Take(*store_);
  }

  // As somebody with etcdctl would.
  void Put(const std::string& key, const std::string& value) const {
    Etcd etcd({etcd_->endpoint()});
    const auto answer = etcd.Transact({.writes = {{StrCat("/refit/test/", key), value}}}, exec::Now() + seconds(5));
    ASSERT_TRUE(answer.has_value()) << answer.status().ToString();
  }

  std::unique_ptr<test::EtcdProcess> etcd_;
  std::unique_ptr<Store> store_;
  Term term_;
};

// RX-JRNL-03: an append whose answer was lost is tried again, and is there once.
TEST_F(EtcdStoreTest, ASilentServerDelaysAnAppendAndDoublesNone) {
  ASSERT_TRUE(store_->Append(term_, Intent(term_, 1)).ok());
  etcd_->Freeze();
  auto appended = std::async(std::launch::async, [this] { return store_->Append(term_, Commit(1)); });
  EXPECT_EQ(appended.wait_for(seconds(2)), std::future_status::timeout);  // longer than one attempt
  etcd_->Thaw();
  const Status status = appended.get();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(store_->Append(term_, Intent(term_, 2)).ok());
  EXPECT_EQ(Records(*store_).size(), 5U);
}

TEST_F(EtcdStoreTest, AServerThatComesBackHasWhatWasAcknowledged) {
  ASSERT_TRUE(store_->Append(term_, Intent(term_, 1)).ok());
  etcd_->Kill();
  etcd_->Start();
  EXPECT_TRUE(store_->Append(term_, Commit(1)).ok());
  EXPECT_EQ(Records(*store_).size(), 4U);
}

TEST_F(EtcdStoreTest, TheNextEndpointIsAskedWhereOneIsSilent) {
  const std::string silent = StrCat("127.0.0.1:", test::FreePort());
  const auto store = Store::Open(StrCat("etcd://", silent, ",", etcd_->endpoint(), "/refit/test"));
  ASSERT_TRUE(store.has_value());
  EXPECT_EQ((*store)->ReadHolder()->term, term_);
}

TEST_F(EtcdStoreTest, AServerThatIsGoneIsNamedInTime) {
  etcd_->Kill();
  const Instant began = exec::Now();
  const Status status = store_->Append(term_, Intent(term_, 1));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(etcd_->endpoint()));
  EXPECT_FALSE(status.remedy().empty());
  EXPECT_LT(exec::Now() - began, seconds(10));
}

// RX-JRNL-02: what is not ours or not whole is an error that says so.
TEST_F(EtcdStoreTest, AMissingRecordIsNoticed) {
  Put("journal/000000000004", "x");
  EXPECT_THAT(store_->ReadRecords().status().message(), HasSubstr("record 3 is missing"));
}

TEST_F(EtcdStoreTest, AChangedRecordIsNoticed) {
  for (const std::string value : {"", "\n", "0123456789abcdef0123456789abcdef 1 TERM\nx"}) {
    Put("journal/000000000002", value);
    const auto records = store_->ReadRecords();
    EXPECT_EQ(records.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(records.status().message(), HasSubstr("record 2 is not what was written"));
  }
}

TEST_F(EtcdStoreTest, ARecordThatNobodyMayHaveWrittenIsNotOverwritten) {
  Put("journal/000000000003", "0123456789abcdef0123456789abcdef 7 TERM\nx");
  EXPECT_EQ(store_->Append(term_, Intent(term_, 1)).code(), StatusCode::kDataLoss);
}

TEST_F(EtcdStoreTest, AHolderThatIsNoneIsNoticed) {
  for (const std::string term : {"", "-1", "x", "4294967296", "0"}) {
    Put("holder/term", term);
    EXPECT_EQ(store_->ReadHolder().status().code(), StatusCode::kDataLoss) << term;
  }
}

}  // namespace
}  // namespace refit::store
