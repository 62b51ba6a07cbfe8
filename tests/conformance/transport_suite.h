// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What every transport keeps (settled D9). A backend's test file writes one small Backend class and instantiates:
//
//   class LoopbackBackend {  // default-constructed per test
//    public:
//     transport::Transport& exporter();          // one end …
//     transport::Transport& reader();            // … and the other
//     MutableBytes Allocate(ByteCount size);     // memory that exporter().Export accepts, alive as long as the backend
//     std::string NobodyAddress();               // well formed, but nobody is there
//     std::string WhyNot();                      // optional: why these tests cannot run here; empty where they can
//     static constexpr bool kExportsInAddress;   // optional: a link knows only the exports of before its Bind
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Loopback, TransportSuite, LoopbackBackend);

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/transport/transport.h"
#include "tests/conformance/transport_helpers.h"

namespace refit::transport {

template <typename Backend>
class TransportSuite : public ::testing::Test {
 protected:
  static constexpr ByteCount kSize = 300'007;

  void SetUp() override {
    if constexpr (requires { backend_.WhyNot(); }) {
      if (const std::string why_not = backend_.WhyNot(); !why_not.empty()) {
        GTEST_SKIP() << why_not;
      }
    }
    memory_ = backend_.Allocate(kSize);
    FillPattern(memory_);
    auto exported = backend_.exporter().Export(memory_);
    ASSERT_TRUE(exported.ok()) << exported.status().ToString();
    descriptor_ = *exported;
    link_ = Bound();
    into_.assign(kSize, kUntouched);
  }

  std::unique_ptr<Link> Bound() {
    auto link = backend_.reader().Bind(backend_.exporter().Address(), In(std::chrono::seconds(5)));
    EXPECT_TRUE(link.ok()) << link.status().ToString();
    return link.ok() ? *std::move(link) : nullptr;
  }

  Backend backend_;
  MutableBytes memory_;
  Descriptor descriptor_;
  std::unique_ptr<Link> link_;
  std::vector<std::byte> into_;
};

TYPED_TEST_SUITE_P(TransportSuite);

TYPED_TEST_P(TransportSuite, FetchesExactlyTheRange) {
  MutableBytes into = MutableBytes(this->into_).subspan(100, 5000);
  const auto op = this->link_->Fetch(this->descriptor_, {77, 5000}, into);
  ASSERT_TRUE(op.ok()) << op.status().ToString();
  ASSERT_EQ(End(*this->link_, *op), OpState::kDone) << this->link_->error(*op).ToString();
  EXPECT_TRUE(HasPattern(into, 77));
  EXPECT_TRUE(IsUntouched(Bytes(this->into_).first(100)));
  EXPECT_TRUE(IsUntouched(Bytes(this->into_).subspan(5100)));
}

TYPED_TEST_P(TransportSuite, FetchesAllOfItTheLastByteAndNothing) {
  for (const Range range :
       {Range{0, TestFixture::kSize}, Range{TestFixture::kSize - 1, 1}, Range{0, 0}, Range{TestFixture::kSize, 0}}) {
    MutableBytes into = MutableBytes(this->into_).first(range.size);
    const auto op = this->link_->Fetch(this->descriptor_, range, into);
    ASSERT_TRUE(op.ok()) << op.status().ToString();
    EXPECT_EQ(End(*this->link_, *op), OpState::kDone);
    EXPECT_TRUE(HasPattern(into, range.offset));
  }
}

TYPED_TEST_P(TransportSuite, RefusesRangesOutsideTheExport) {
  constexpr ByteCount kHuge = ~ByteCount{0};
  for (const Range range :
       {Range{TestFixture::kSize, 1}, Range{1, TestFixture::kSize}, Range{kHuge, 1}, Range{kHuge - 10, 20}}) {
    EXPECT_FALSE(this->link_->Fetch(this->descriptor_, range, MutableBytes(this->into_).first(range.size % 65536)).ok())
        << range.offset;
  }
  EXPECT_FALSE(this->link_->Fetch(this->descriptor_, {0, 10}, MutableBytes(this->into_).first(11)).ok());
  EXPECT_FALSE(this->link_->Fetch(this->descriptor_, {0, 10}, MutableBytes(this->into_).first(9)).ok());
  EXPECT_TRUE(IsUntouched(this->into_));
}

// Descriptors come from a peer: nothing but its own exports may be reached, and nothing may crash.
TYPED_TEST_P(TransportSuite, RefusesEveryTextThatIsNoExportOfThePeer) {
  const std::string good = this->descriptor_.text;
  std::vector<std::string> hostile = {"",
                                      ":",
                                      "shm:",
                                      "loopback:",
                                      "/etc/passwd",
                                      "shm:/../../etc/passwd:10",
                                      std::string(511, ':'),
                                      std::string(1 << 20, 'a'),
                                      std::string("\0\0\0", 3),
                                      good + "0",
                                      good + ":1",
                                      " " + good};
  for (std::size_t i = 0; i < good.size(); ++i) {
    hostile.push_back(good.substr(0, i));
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    hostile.push_back(changed);
    changed[i] = '/';
    if (changed != good) {
      hostile.push_back(changed);
    }
  }
  for (const std::string& text : hostile) {
    EXPECT_FALSE(this->link_->Fetch({text}, {0, 10}, MutableBytes(this->into_).first(10)).ok()) << text.substr(0, 80);
    EXPECT_FALSE(this->link_->MapInPlace({text}).ok()) << text.substr(0, 80);
  }
  EXPECT_TRUE(IsUntouched(this->into_));
  EXPECT_LE(good.size(), 512U);
}

TYPED_TEST_P(TransportSuite, RefusesMemoryThatWasUnexported) {
  this->backend_.exporter().Unexport(this->descriptor_);
  this->backend_.exporter().Unexport(this->descriptor_);  // unknown by now: nothing happens
  this->backend_.exporter().Unexport({"nonsense"});
  const std::unique_ptr<Link> link = this->Bound();
  EXPECT_FALSE(link->Fetch(this->descriptor_, {0, 10}, MutableBytes(this->into_).first(10)).ok());
  EXPECT_FALSE(link->MapInPlace(this->descriptor_).ok());
}

TYPED_TEST_P(TransportSuite, KeepsTheOtherExportsWhenOneIsWithdrawn) {
  const MutableBytes other = this->backend_.Allocate(1000);
  FillPattern(other);
  const auto second = this->backend_.exporter().Export(other);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(second->text, this->descriptor_.text);
  this->backend_.exporter().Unexport(this->descriptor_);
  if constexpr (requires { TypeParam::kExportsInAddress; }) {
    this->link_ = this->Bound();
  }
  const auto op = this->link_->Fetch(*second, {0, 1000}, MutableBytes(this->into_).first(1000));
  ASSERT_TRUE(op.ok()) << op.status().ToString();
  EXPECT_EQ(End(*this->link_, *op), OpState::kDone);
  EXPECT_TRUE(HasPattern(MutableBytes(this->into_).first(1000), 0));
}

TYPED_TEST_P(TransportSuite, SeesWhatTheExporterWroteBeforeTheFetch) {
  for (int round = 0; round < 20; ++round) {
    std::fill(this->memory_.begin(), this->memory_.end(), static_cast<std::byte>(round));
    const auto op = this->link_->Fetch(this->descriptor_, {0, TestFixture::kSize}, MutableBytes(this->into_));
    ASSERT_TRUE(op.ok());
    ASSERT_EQ(End(*this->link_, *op), OpState::kDone);
    EXPECT_TRUE(std::all_of(this->into_.begin(), this->into_.end(),
                            [&](std::byte b) { return b == static_cast<std::byte>(round); }));
  }
}

TYPED_TEST_P(TransportSuite, KeepsManyOperationsApart) {
  constexpr std::size_t kOps = 2000;
  std::vector<OpId> ops;
  for (std::size_t i = 0; i < kOps; ++i) {
    const auto op =
        this->link_->Fetch(this->descriptor_, {i * 150, 150}, MutableBytes(this->into_).subspan(i * 150, 150));
    ASSERT_TRUE(op.ok());
    ops.push_back(*op);
  }
  std::reverse(ops.begin(), ops.end());  // polled in another order than started
  for (const OpId op : ops) {
    EXPECT_EQ(End(*this->link_, op), OpState::kDone);
  }
  EXPECT_TRUE(HasPattern(Bytes(this->into_).first(kOps * 150), 0));
  std::sort(ops.begin(), ops.end());
  EXPECT_EQ(std::adjacent_find(ops.begin(), ops.end()), ops.end());
}

TYPED_TEST_P(TransportSuite, EndsEveryOperationOnceAndForGood) {
  const auto op = this->link_->Fetch(this->descriptor_, {0, 10}, MutableBytes(this->into_).first(10));
  ASSERT_TRUE(op.ok());
  const OpState ended = End(*this->link_, *op);
  this->link_->Close();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(this->link_->Poll(*op), ended);
  }
  EXPECT_EQ(this->link_->Poll(*op + 1000), OpState::kFailed);  // was never started
  EXPECT_FALSE(this->link_->error(*op + 1000).ok());
}

TYPED_TEST_P(TransportSuite, EndsEveryOperationAlsoAfterClose) {
  std::vector<OpId> ops;
  for (std::size_t i = 0; i < 50; ++i) {
    const auto op = this->link_->Fetch(this->descriptor_, {i, 1000}, MutableBytes(this->into_).subspan(i * 1000, 1000));
    ASSERT_TRUE(op.ok());
    ops.push_back(*op);
  }
  this->link_->Close();
  this->link_->Close();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const OpState state = End(*this->link_, ops[i]);
    const Bytes into = Bytes(this->into_).subspan(i * 1000, 1000);
    EXPECT_NE(state, OpState::kPending);
    EXPECT_EQ(this->link_->error(ops[i]).ok(), state == OpState::kDone);
    EXPECT_TRUE(state == OpState::kDone ? HasPattern(into, i) : IsUntouched(into));
  }
  EXPECT_FALSE(this->link_->Fetch(this->descriptor_, {0, 10}, MutableBytes(this->into_).first(10)).ok());
  EXPECT_FALSE(this->link_->MapInPlace(this->descriptor_).ok());
}

TYPED_TEST_P(TransportSuite, MayBeClosedByAnotherThread) {
  std::thread closer([this] { this->link_->Close(); });
  for (int i = 0; i < 200; ++i) {
    const auto op = this->link_->Fetch(this->descriptor_, {0, 1000}, MutableBytes(this->into_).first(1000));
    if (op.ok()) {
      EXPECT_NE(End(*this->link_, *op), OpState::kPending);
    }
  }
  closer.join();
}

// RX-ASM-T2: after kFenced nothing writes any more, whatever is polled.
TYPED_TEST_P(TransportSuite, WritesNothingAfterAFence) {
  std::vector<OpId> ops;
  for (std::size_t i = 0; i < 50; ++i) {
    ops.push_back(*this->link_->Fetch(this->descriptor_, {i, 1000}, MutableBytes(this->into_).subspan(i * 1000, 1000)));
  }
  ASSERT_EQ(this->link_->Fence(In(std::chrono::seconds(10))), FenceOutcome::kFenced);
  std::fill(this->into_.begin(), this->into_.end(), kUntouched);
  for (const OpId op : ops) {
    EXPECT_NE(End(*this->link_, op), OpState::kPending);
  }
  EXPECT_TRUE(IsUntouched(this->into_));
  // The link goes on after a fence.
  const auto op = this->link_->Fetch(this->descriptor_, {5, 10}, MutableBytes(this->into_).first(10));
  ASSERT_TRUE(op.ok());
  EXPECT_EQ(End(*this->link_, *op), OpState::kDone);
}

TYPED_TEST_P(TransportSuite, FencesAClosedLink) {
  const auto op = this->link_->Fetch(this->descriptor_, {0, 1000}, MutableBytes(this->into_).first(1000));
  ASSERT_TRUE(op.ok());
  this->link_->Close();
  ASSERT_EQ(this->link_->Fence(In(std::chrono::seconds(10))), FenceOutcome::kFenced);
  std::fill(this->into_.begin(), this->into_.end(), kUntouched);
  EXPECT_NE(End(*this->link_, *op), OpState::kPending);
  EXPECT_TRUE(IsUntouched(this->into_));
}

TYPED_TEST_P(TransportSuite, MapsInPlaceOrSaysThatItCannot) {
  const auto mapped = this->link_->MapInPlace(this->descriptor_);
  EXPECT_EQ(this->backend_.reader().can_map_in_place(), this->backend_.exporter().can_map_in_place());
  if (!this->backend_.reader().can_map_in_place()) {
    EXPECT_EQ(mapped.status().code(), StatusCode::kUnimplemented);
    return;
  }
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  const MutableBytes bytes = mapped->bytes;
  ASSERT_EQ(bytes.size(), TestFixture::kSize);
  EXPECT_TRUE(HasPattern(bytes, 0));
  bytes[17] = std::byte{99};  // the same memory, both ways
  EXPECT_EQ(this->memory_[17], std::byte{99});
  this->memory_[18] = std::byte{98};
  EXPECT_EQ(bytes[18], std::byte{98});
  EXPECT_EQ(this->link_->MapInPlace(this->descriptor_)->bytes.data(), mapped->bytes.data());
}

TYPED_TEST_P(TransportSuite, EndsABindToNobodyByItsDeadline) {
  const Instant start = exec::Now();
  const auto link = this->backend_.reader().Bind(this->backend_.NobodyAddress(), start + std::chrono::milliseconds(50));
  EXPECT_EQ(link.status().code(), StatusCode::kUnavailable);
  EXPECT_LT(exec::Now() - start, std::chrono::seconds(5));
  EXPECT_FALSE(this->backend_.reader().Bind("", exec::Now()).ok());
  EXPECT_FALSE(this->backend_.reader().Bind(std::string(100'000, ':'), exec::Now()).ok());
}

TYPED_TEST_P(TransportSuite, GivesEachLinkItsOwnOperations) {
  const std::unique_ptr<Link> other = this->Bound();
  other->Close();
  const auto op = this->link_->Fetch(this->descriptor_, {0, 10}, MutableBytes(this->into_).first(10));
  ASSERT_TRUE(op.ok());
  EXPECT_EQ(End(*this->link_, *op), OpState::kDone);
}

TYPED_TEST_P(TransportSuite, HasANameAndAnAddress) {
  EXPECT_FALSE(this->backend_.exporter().name().empty());
  EXPECT_FALSE(this->backend_.exporter().Address().empty());
  EXPECT_EQ(this->backend_.exporter().Address(), this->backend_.exporter().Address());
}

REGISTER_TYPED_TEST_SUITE_P(TransportSuite, FetchesExactlyTheRange, FetchesAllOfItTheLastByteAndNothing,
                            RefusesRangesOutsideTheExport, RefusesEveryTextThatIsNoExportOfThePeer,
                            RefusesMemoryThatWasUnexported, KeepsTheOtherExportsWhenOneIsWithdrawn,
                            SeesWhatTheExporterWroteBeforeTheFetch, KeepsManyOperationsApart,
                            EndsEveryOperationOnceAndForGood, EndsEveryOperationAlsoAfterClose,
                            MayBeClosedByAnotherThread, WritesNothingAfterAFence, FencesAClosedLink,
                            MapsInPlaceOrSaysThatItCannot, EndsABindToNobodyByItsDeadline,
                            GivesEachLinkItsOwnOperations, HasANameAndAnAddress);

}  // namespace refit::transport
