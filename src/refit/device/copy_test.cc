// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "refit/device/hash.h"

namespace refit::device {
namespace {

using ::testing::HasSubstr;

constexpr std::byte kPoison{0xDD};

std::vector<std::byte> Pattern(std::size_t size, std::size_t seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((37 * i + 11 * seed + 5) % 251);
  }
  return bytes;
}

Digest DigestOf(Bytes bytes) {
  const std::unique_ptr<DigestHasher> hasher = MakeDigestHasher();
  hasher->Reset();
  hasher->Update(bytes);
  return hasher->Finish();
}

// A mapped file that can be cut under the reader.
class MappedFile {
 public:
  explicit MappedFile(std::size_t size) : size_(size) {
    char path[] = "/tmp/refit-copy-test-XXXXXX";
    file_ = mkstemp(path);
    EXPECT_GE(file_, 0);
    unlink(path);
    Resize(size);
    data_ = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    EXPECT_NE(static_cast<void*>(data_), MAP_FAILED);
  }
  ~MappedFile() {
    munmap(data_, size_);
    close(file_);
  }
  void Resize(std::size_t size) { EXPECT_EQ(ftruncate(file_, static_cast<off_t>(size)), 0); }
  MutableBytes bytes() { return {data_, size_}; }

 private:
  std::size_t size_;
  int file_ = -1;
  std::byte* data_ = nullptr;
};

TEST(RunCopies, GathersSourcesAndHashesEachEntry) {
  const auto a = Pattern(200'000, 1);
  const auto b = Pattern(70'001, 2);
  const std::vector<Bytes> sources = {a, b};
  std::vector<std::byte> target(300'000, kPoison);
  // Entry 0 is gathered from two sources, entry 1 has no bytes, entry 2 begins inside a source.
  const stream::CopyPlan plan = {{0, 1000, 0, 150'000, 0}, {1, 0, 150'000, 70'001, 0}, {0, 7, 220'008, 500, 2}};
  std::vector<Digest> digests;
  const std::unique_ptr<DigestHasher> hasher = MakeDigestHasher();

  ASSERT_TRUE(RunCopies(plan, sources, target, 3, hasher.get(), digests).ok());

  std::vector<std::byte> expected(220'001);
  std::copy_n(a.begin() + 1000, 150'000, expected.begin());
  std::copy(b.begin(), b.end(), expected.begin() + 150'000);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), target.begin()));
  EXPECT_TRUE(std::equal(a.begin() + 7, a.begin() + 507, target.begin() + 220'008));
  EXPECT_TRUE(
      std::all_of(target.begin() + 220'001, target.begin() + 220'008, [](std::byte x) { return x == kPoison; }));
  ASSERT_EQ(digests.size(), 3U);
  EXPECT_EQ(digests[0], DigestOf(expected));
  EXPECT_EQ(digests[1], DigestOf({}));
  EXPECT_EQ(digests[2], DigestOf(Bytes(a).subspan(7, 500)));
}

TEST(RunCopies, CopiesWithoutAHasher) {
  const auto a = Pattern(100'000, 1);
  const std::vector<Bytes> sources = {a};
  std::vector<std::byte> target(a.size());
  std::vector<Digest> digests;
  ASSERT_TRUE(RunCopies({{0, 0, 0, a.size(), 0}}, sources, target, 1, nullptr, digests).ok());
  EXPECT_EQ(target, a);
  EXPECT_EQ(digests.size(), 1U);
}

// Sees what the target holds beyond the block that is being hashed.
class OrderSpy final : public DigestHasher {
 public:
  explicit OrderSpy(Bytes target) : target_(target) {}
  void Reset() override {}
  void Update(Bytes block) override {
    hashed_ += block.size();
    largest_ = std::max<ByteCount>(largest_, block.size());
    const std::byte* const next = block.data() + block.size();
    if (next < target_.data() + target_.size() && *next != kPoison) {
      copied_ahead_ = true;
    }
  }
  Digest Finish() override { return {}; }

  ByteCount hashed_ = 0;
  ByteCount largest_ = 0;
  bool copied_ahead_ = false;

 private:
  Bytes target_;
};

// RX-SUM-06: one memory pass, in blocks of at most 64 KiB, each hashed right after its copy and before the next one's.
TEST(RunCopies, HashesEachBlockRightAfterItsCopyAndOnlyOnce) {
  const std::vector<std::byte> source(5 * kHashBlock + 17, std::byte{1});
  const std::vector<Bytes> sources = {source};
  std::vector<std::byte> target(source.size(), kPoison);
  OrderSpy spy(target);
  std::vector<Digest> digests;
  ASSERT_TRUE(RunCopies({{0, 0, 0, source.size(), 0}}, sources, target, 1, &spy, digests).ok());
  EXPECT_EQ(spy.hashed_, source.size());
  EXPECT_LE(spy.largest_, 64 * kKiB);
  EXPECT_FALSE(spy.copied_ahead_);
}

TEST(RunCopies, RefusesAPlanThatLeavesItsBuffers) {
  const auto a = Pattern(100, 1);
  const std::vector<Bytes> sources = {a};
  std::vector<std::byte> target(100, kPoison);
  std::vector<Digest> digests;
  const auto refuses = [&](const stream::CopyPlan& plan) {
    return !RunCopies(plan, sources, target, 2, nullptr, digests).ok();
  };
  EXPECT_TRUE(refuses({{1, 0, 0, 1, 0}}));                   // no such source
  EXPECT_TRUE(refuses({{0, 1, 0, 100, 0}}));                 // beyond the source
  EXPECT_TRUE(refuses({{0, ~ByteCount{0}, 0, 2, 0}}));       // wraps around
  EXPECT_TRUE(refuses({{0, 0, 1, 100, 0}}));                 // beyond the target
  EXPECT_TRUE(refuses({{0, 0, 0, 1, 2}}));                   // no such entry
  EXPECT_TRUE(refuses({{0, 0, 0, 1, 1}, {0, 0, 1, 1, 0}}));  // entries out of order
  EXPECT_TRUE(std::all_of(target.begin(), target.end(), [](std::byte x) { return x == kPoison; }));
}

// RC-PAY-10: a source that is truncated while mapped is an error, not a dead process.
TEST(RunCopies, SurvivesASourceThatIsTruncatedWhileMapped) {
  MappedFile file(1 << 20);
  file.Resize(4096);
  const std::vector<Bytes> sources = {file.bytes()};
  std::vector<std::byte> target(1 << 20);
  std::vector<Digest> digests;
  const std::unique_ptr<DigestHasher> hasher = MakeDigestHasher();
  for (int round = 0; round < 3; ++round) {  // the guard works again after it was used
    const Status status = RunCopies({{0, 0, 0, 1 << 20, 0}}, sources, target, 1, hasher.get(), digests);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("vanished while mapped"));
  }
  EXPECT_TRUE(RunCopies({{0, 0, 0, 4096, 0}}, sources, target, 1, hasher.get(), digests).ok());
}

TEST(GuardMapped, WorksOnEveryThreadAtOnce) {
  MappedFile file(1 << 20);
  file.Resize(0);
  std::vector<std::thread> threads;
  std::vector<int> losses(4, 0);
  for (int& lost : losses) {
    threads.emplace_back([&file, &lost] {
      for (int i = 0; i < 100; ++i) {
        const Status status = GuardMapped("page", [&] { static_cast<volatile std::byte*>(file.bytes().data())[4096]; });
        lost += status.ok() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(losses, std::vector<int>(4, 100));
}

TEST(GuardMapped, Nests) {
  MappedFile file(4096);
  file.Resize(0);
  const auto touch = [&] { static_cast<volatile std::byte*>(file.bytes().data())[0]; };
  Status inner;
  Status outer = GuardMapped("outer", [&] {
    inner = GuardMapped("inner", touch);
    touch();
  });
  EXPECT_THAT(inner.message(), HasSubstr("inner"));
  EXPECT_THAT(outer.message(), HasSubstr("outer"));
}

TEST(GuardMappedDeathTest, LeavesOtherFaultsToWhoeverHandledThemBefore) {
  MappedFile file(4096);
  file.Resize(0);
  EXPECT_EXIT(
      {
        signal(SIGBUS, SIG_DFL);
        EXPECT_TRUE(GuardMapped("nothing", [] {}).ok());
        static_cast<volatile std::byte*>(file.bytes().data())[0];
      },
      ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        EXPECT_FALSE(GuardMapped("page", [&] { static_cast<volatile std::byte*>(file.bytes().data())[0]; }).ok());
        static_cast<volatile std::byte*>(file.bytes().data())[0];
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace refit::device
