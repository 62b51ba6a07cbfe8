// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The bucket protocol on a link (RC-BKT-06 … -10, -13): any plan, any interleaving of the two ends, poisoned buffers.

#include "tests/support/link_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "refit/transport/loopback/loopback_transport.h"

namespace refit::test {
namespace {

using ::testing::HasSubstr;

// A link that counts, and fails where it is told to.
class SpyLink final : public transport::Link {
 public:
  explicit SpyLink(std::unique_ptr<transport::Link> inner) : inner_(std::move(inner)) {}

  Result<transport::OpId> Fetch(const transport::Descriptor& descriptor, transport::Range range,
                                device::Memory into) override {
    if (fetches_++ == fail_fetch_) {
      return Unavailable("no route");
    }
    fetched_ += range.size;
    ++running_;
    return inner_->Fetch(descriptor, range, into);
  }
  transport::OpState Poll(transport::OpId op) override {
    const transport::OpState state = inner_->Poll(op);
    if (state == transport::OpState::kPending) {
      return state;
    }
    --running_;
    return ended_++ == fail_read_ ? transport::OpState::kFailed : state;
  }
  Status error(transport::OpId op) const override {
    const Status status = inner_->error(op);
    return status.ok() ? Unavailable("read broke off") : status;
  }
  transport::FenceOutcome Fence(Instant deadline) override { return inner_->Fence(deadline); }
  Result<device::Memory> MapInPlace(const transport::Descriptor& descriptor) override {
    return inner_->MapInPlace(descriptor);
  }
  void Close() override { inner_->Close(); }

  std::size_t fail_fetch_ = ~std::size_t{0};  // counted from 0
  std::size_t fail_read_ = ~std::size_t{0};
  ByteCount fetched_ = 0;
  std::size_t running_ = 0;

 private:
  std::unique_ptr<transport::Link> inner_;
  std::size_t fetches_ = 0;
  std::size_t ended_ = 0;
};

struct Source {
  std::vector<weights::TensorSpec> specs;
  std::vector<std::vector<std::byte>> tensors;

  void Add(weights::DType dtype, std::int64_t elements, std::mt19937& random) {
    const ByteCount size = static_cast<ByteCount>(elements) * weights::ItemSize(dtype);
    specs.push_back({StrCat("tensor.", specs.size()), dtype, {elements}});
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random() % 256);
    }
    tensors.push_back(std::move(bytes));
  }
  weights::ReshardPlan Plan() const {
    weights::ReshardPlan plan;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      weights::PlannedTensor tensor{specs[i], tensors[i].size(), {}};
      if (!tensors[i].empty()) {
        tensor.copies.push_back({i, 0, 0, tensors[i].size()});
      }
      plan.tensors.push_back(std::move(tensor));
    }
    return plan;
  }
  std::vector<Bytes> Spans() const { return {tensors.begin(), tensors.end()}; }
};

Source RandomSource(std::mt19937& random) {
  constexpr weights::DType kTypes[] = {weights::DType::kBfloat16, weights::DType::kFloat32, weights::DType::kInt8};
  Source source;
  for (std::size_t count = random() % 12; count > 0; --count) {
    const std::uint32_t limit = random() % 4 == 0 ? 300 : 20;
    source.Add(kTypes[random() % 3], static_cast<std::int64_t>(random() % limit), random);
  }
  return source;
}

class LinkStream : public ::testing::Test {
 protected:
  static constexpr ByteCount kCapacity = 96;    // of a piece
  static constexpr ByteCount kLoadBytes = 160;  // tensors are smaller, larger, and much larger than a load
  static constexpr int kMaxSteps = 20'000;

  void SetUp() override {
    auto link = reader_.Bind(exporter_.Address(), exec::Now());
    ASSERT_TRUE(link.ok());
    link_ = std::make_unique<SpyLink>(*std::move(link));
  }

  // Runs a stream to its end, each end stepping as often as chance will; checks every byte on arrival.
  Status Run(const Source& source, std::mt19937& random) {
    buckets_ = stream::Pack(source.Plan(), stream::PackUnit::kPiece, kCapacity).value();
    Channel channel;
    sender_.Begin(buckets_, source.Spans());
    LinkReceiver receiver("policy rank 3", link_.get(), pool_, kCapacity);
    std::size_t arrived = 0;
    for (int step = 0; step < kMaxSteps; ++step) {
      if (receiver.finished() && sender_.done()) {
        EXPECT_EQ(arrived, source.specs.size());
        return OkStatus();
      }
      if (random() % 2 == 0) {
        sender_.Step(channel);
        EXPECT_LE(channel.announcements.size(), 1U) << "at most one published bucket is unread";
        continue;
      }
      const std::size_t notes = channel.notes.size();
      REFIT_ASSIGN_OR_RETURN(const auto batch, receiver.Step(channel));
      EXPECT_TRUE(channel.notes.size() == notes || link_->running_ == 0) << "a note before its reads were complete";
      for (const ReceivedTensor& tensor : batch ? *batch : std::vector<ReceivedTensor>()) {
        if (arrived >= source.specs.size() || tensor.spec != source.specs[arrived] ||
            !std::equal(tensor.bytes.begin(), tensor.bytes.end(), source.tensors[arrived].begin(),
                        source.tensors[arrived].end())) {
          return Internal(StrCat("tensor ", arrived, " arrived as ", tensor.spec.name, ", or with other bytes"));
        }
        ++arrived;
      }
    }
    return DeadlineExceeded("the stream did not end");
  }

  transport::LoopbackHub hub_;
  transport::LoopbackTransport exporter_{hub_};
  transport::LoopbackTransport reader_{hub_};
  LinkSender sender_{exporter_, kCapacity};  // both reused over every stream of a test, registered once
  LoadPool pool_{kLoadBytes};
  std::unique_ptr<SpyLink> link_;
  std::vector<stream::PackedBucket> buckets_;
};

// RC-BKT-06, -07, -08: whatever the interleaving, no buffer is written while it is read, and nothing incomplete is
// published. The same two buffers on each side serve all streams.
TEST_F(LinkStream, DeliversEveryByteUnderAnyInterleaving) {  // S58
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const Source source = RandomSource(random);
    const Status status = Run(source, random);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.ToString();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    ASSERT_EQ(pool_.taken(), 0U) << "seed " << seed;
  }
}

// RC-BKT-09: a last piece with few bytes costs few bytes, and what lies between tensors costs none.
TEST_F(LinkStream, ReadsExactlyTheUsedBytes) {
  std::mt19937 random(7);
  Source source;
  source.Add(weights::DType::kBfloat16, 3, random);
  source.Add(weights::DType::kFloat32, 100, random);
  source.Add(weights::DType::kInt8, 1, random);
  ASSERT_TRUE(Run(source, random).ok());
  ByteCount used = 0;
  for (const stream::PackedBucket& packed : buckets_) {
    used += packed.bucket.used;
  }
  EXPECT_LT(used, buckets_.size() * kCapacity);
  EXPECT_LE(link_->fetched_, used);
  EXPECT_EQ(link_->fetched_, 3U * 2 + 100 * 4 + 1);
}

// RC-BKT-10: a read that cannot start, or breaks off, ends the stream naming the peer, and leaks no memory of a load.
TEST_F(LinkStream, FailsNamingThePeerAndGivesEveryBufferBackOnce) {  // S21
  std::mt19937 random(11);
  Source source;
  for (int i = 0; i < 4; ++i) {
    source.Add(weights::DType::kFloat32, 40, random);
  }
  for (std::size_t at = 0; at < 5; ++at) {
    SetUp();
    link_->fail_fetch_ = at;
    const Status start = Run(source, random);
    EXPECT_EQ(start.code(), StatusCode::kUnavailable);
    EXPECT_THAT(start.message(), HasSubstr("policy rank 3"));
    EXPECT_THAT(start.message(), HasSubstr("no route"));
    EXPECT_EQ(pool_.taken(), 0U);
    SetUp();
    link_->fail_read_ = at;
    const Status read = Run(source, random);
    EXPECT_EQ(read.code(), StatusCode::kUnavailable);
    EXPECT_THAT(read.message(), HasSubstr("policy rank 3"));
    EXPECT_THAT(read.message(), HasSubstr("read broke off"));
    ASSERT_EQ(pool_.taken(), 0U);  // before the next round would find no free memory
  }
  SetUp();
  EXPECT_TRUE(Run(source, random).ok());  // the memory serves the next stream
}

TEST_F(LinkStream, GivesTheMemoryOfARunningReadBackWhenTheReceiverGoes) {
  std::mt19937 random(13);
  Source source;
  source.Add(weights::DType::kFloat32, 10, random);
  Channel channel;
  sender_.Begin(stream::Pack(source.Plan(), stream::PackUnit::kPiece, kCapacity).value(), source.Spans());
  while (channel.announcements.empty()) {
    sender_.Step(channel);
  }
  {
    LinkReceiver receiver("policy rank 3", link_.get(), pool_, kCapacity);
    ASSERT_TRUE(receiver.Step(channel).ok());
    EXPECT_EQ(pool_.taken(), 1U);
  }
  EXPECT_EQ(pool_.taken(), 0U);
}

// RC-BKT-11, at the receiving end.
TEST_F(LinkStream, EndsAtOnceOnAnEmptyStream) {
  std::mt19937 random(1);
  EXPECT_TRUE(Run(Source(), random).ok());
  EXPECT_EQ(buckets_.size(), 1U);
  EXPECT_EQ(link_->fetched_, 0U);
}

// RC-BKT-13
TEST_F(LinkStream, RefusesToReceiveOnAReceiverThatWasNeverBound) {
  LinkReceiver receiver("policy rank 3", nullptr, pool_, kCapacity);
  Channel channel;
  EXPECT_EQ(receiver.Step(channel).status().code(), StatusCode::kFailedPrecondition);
}

// RX-SUM L1: a bit that flips in the staging buffer does not get through.
TEST_F(LinkStream, NoticesAFlippedBit) {  // S56
  std::mt19937 random(17);
  Source source;
  source.Add(weights::DType::kFloat32, 10, random);
  Channel channel;
  sender_.Begin(stream::Pack(source.Plan(), stream::PackUnit::kPiece, kCapacity).value(), source.Spans());
  while (channel.announcements.empty()) {
    sender_.Step(channel);
  }
  channel.announcements.front().digest.low ^= 1;
  LinkReceiver receiver("policy rank 3", link_.get(), pool_, kCapacity);
  Status status;
  for (int step = 0; step < 10 && status.ok(); ++step) {
    status = receiver.Step(channel).status();
  }
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(channel.notes.empty());
  EXPECT_EQ(pool_.taken(), 0U);
}

}  // namespace
}  // namespace refit::test
