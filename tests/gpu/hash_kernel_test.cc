// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernel against its oracle, the scalar form, and the server's own goldens (settled D8).

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "refit/device/cuda.h"
#include "refit/device/gpu_hash.h"
#include "refit/exec/clock.h"
#include "tests/gpu/exporter_process.h"

namespace refit::device {
namespace {

class HashKernel : public ::testing::Test {
 protected:
  static constexpr ByteCount kSize = 96 * kMiB;

  void SetUp() override {
    if (const std::string why = gpu_test::WhyNoGpus(1); !why.empty()) {
      GTEST_SKIP() << why;
    }
    auto queue = GpuQueue::Make(0);
    ASSERT_TRUE(queue.ok()) << queue.status().ToString();
    queue_ = *std::move(queue);
    auto arena = GpuArena::Allocate(0, kSize);
    ASSERT_TRUE(arena.ok()) << arena.status().ToString();
    arena_ = *std::move(arena);
    host_.resize(kSize);
    std::mt19937_64 random(20261129);
    for (std::size_t i = 0; i < host_.size(); i += 8) {
      const std::uint64_t word = random();
      std::copy_n(reinterpret_cast<const std::byte*>(&word), 8, host_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    ASSERT_TRUE(gpu_test::CopyNow(0, host_.data(), gpu(), kSize).ok());
  }

  std::byte* gpu() const { return arena_->memory().bytes.data(); }

  struct Part {
    ByteCount at = 0;  // in the arena
    ByteCount size = 0;
    ByteCount offset = 0;
    ByteCount total = 0;
  };

  std::vector<std::uint64_t> Sums(const std::vector<Part>& parts) {
    std::vector<GpuHashPart> on_gpu;
    for (const Part& part : parts) {
      on_gpu.push_back({gpu() + part.at, part.size, part.offset, part.total});
    }
    std::vector<std::uint64_t> sums(parts.size(), 0xDDDD);
    const Status queued = queue_->Hash(on_gpu, sums);
    EXPECT_TRUE(queued.ok()) << queued.ToString();
    const auto ticket = queue_->Mark();
    EXPECT_TRUE(ticket.ok());
    const Status waited = queue_->Wait(*ticket, exec::Now() + std::chrono::seconds(30));
    EXPECT_TRUE(waited.ok()) << waited.ToString();
    return sums;
  }

  std::uint64_t Oracle(const Part& part) const {
    return GpuHashSum(Bytes(host_).subspan(part.at, part.size), part.offset, part.total);
  }

  void ExpectAsTheOracle(const std::vector<Part>& parts) {
    const std::vector<std::uint64_t> sums = Sums(parts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ASSERT_EQ(sums[i], Oracle(parts[i])) << "part " << i << ": " << parts[i].size << " bytes at " << parts[i].at
                                           << ", offset " << parts[i].offset << " of " << parts[i].total;
    }
  }

  std::vector<std::byte> host_;
  std::unique_ptr<GpuArena> arena_;
  std::unique_ptr<GpuQueue> queue_;
};

TEST_F(HashKernel, AgreesWithTheServers) {
  struct Golden {
    std::size_t size;
    const char* hash;
  };
  for (const Golden& golden :
       {Golden{1, "1ad0c089aca86aa8"}, Golden{5, "51f57fd648f2a8af"}, Golden{32772, "1d2f06eaaa243793"},
        Golden{1000003, "9fda312147aed7d1"}, Golden{10000003, "52eb19f033c4ac2a"}}) {
    std::vector<std::byte> bytes(golden.size);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>((37 * i + 11) % 251);
    }
    ASSERT_TRUE(gpu_test::CopyNow(0, bytes.data(), gpu(), bytes.size()).ok());
    const std::vector<std::uint64_t> sums = Sums({{0, golden.size, 0, golden.size}});
    EXPECT_EQ(GpuHashText(FinishGpuHash(sums[0], golden.size)), golden.hash) << golden.size;
  }
}

TEST_F(HashKernel, IsRightForEverySizeNearABoundaryAndEveryAlignment) {
  std::vector<Part> parts;
  for (const ByteCount at : {0U, 1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U, 20U, 255U, 256U}) {
    for (const ByteCount about : {0U, 16U, 512U, 4096U, 32768U, 65536U, 98304U}) {
      for (ByteCount size = about < 20 ? 0 : about - 20; size < about + 20; ++size) {
        parts.push_back({at, size, 0, size});
      }
    }
  }
  ExpectAsTheOracle(parts);
}

TEST_F(HashKernel, AddsUpTheTilesOfLargeTensors) {
  ExpectAsTheOracle({{0, kSize, 0, kSize}, {4, kSize - 4, 0, kSize - 4}, {2, kSize - 7, 0, kSize - 7}});
}

TEST_F(HashKernel, HashesPartsOfATensorWhereverTheyLie) {
  constexpr ByteCount kTotal = (ByteCount{1} << 34) + 12345;  // word numbers wrap in a tensor of more than 16 GiB
  ExpectAsTheOracle({{512, 3 * kGpuHashTile, 0, kTotal},
                     {1024, 3 * kGpuHashTile, 5 * kGpuHashTile, kTotal},
                     {2048, 12345, ByteCount{1} << 34, kTotal},
                     {0, 0, 0, 0},
                     {64, 0, kGpuHashTile, kTotal}});
  const std::uint64_t whole = Oracle({0, kSize, 0, kSize});
  const std::vector<std::uint64_t> sums = Sums(
      {{0, 32 * kMiB, 0, kSize}, {32 * kMiB, 32 * kMiB, 32 * kMiB, kSize}, {64 * kMiB, 32 * kMiB, 64 * kMiB, kSize}});
  EXPECT_EQ(sums[0] + sums[1] + sums[2], whole);
}

// As many as a mixture of experts has, most of them small.
TEST_F(HashKernel, HashesEighteenThousandPartsInOneCall) {
  std::mt19937_64 random(7);
  std::vector<Part> parts;
  for (int i = 0; i < 18'000; ++i) {
    const ByteCount size = i % 7 == 0 ? random() % 200'000 : random() % 4096;
    const ByteCount at = random() % (kSize - size) / (i % 3 == 0 ? 1 : 16) * (i % 3 == 0 ? 1 : 16);
    parts.push_back({at, size, 0, size});
  }
  ExpectAsTheOracle(parts);
}

TEST_F(HashKernel, KeepsCallsThatAreUnderWayApart) {
  constexpr std::size_t kCalls = 20;
  std::vector<std::vector<std::uint64_t>> sums(kCalls);
  std::vector<GpuTicket> tickets;
  for (std::size_t i = 0; i < kCalls; ++i) {
    const GpuHashPart part{gpu() + 256 * i, kMiB + i, 0, kMiB + i};
    sums[i].assign(1, 0);
    ASSERT_TRUE(queue_->Hash({&part, 1}, sums[i]).ok());
    const auto ticket = queue_->Mark();
    ASSERT_TRUE(ticket.ok());
    tickets.push_back(*ticket);
  }
  ASSERT_TRUE(queue_->Wait(tickets.back(), exec::Now() + std::chrono::seconds(30)).ok());
  for (std::size_t i = 0; i < kCalls; ++i) {
    EXPECT_EQ(sums[i][0], Oracle({256 * i, kMiB + i, 0, kMiB + i})) << i;
  }
}

TEST_F(HashKernel, RefusesPartsThatDoNotBeginAtATile) {
  std::uint64_t sum = 0;
  for (const GpuHashPart& part : {GpuHashPart{gpu(), 100, 4, 104}, GpuHashPart{gpu(), 100, 0, 200},
                                  GpuHashPart{gpu(), kGpuHashTile, kGpuHashTile, kGpuHashTile}}) {
    EXPECT_EQ(queue_->Hash({&part, 1}, {&sum, 1}).code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace refit::device
