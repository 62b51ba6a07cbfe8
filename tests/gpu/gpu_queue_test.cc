// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// device/cuda.h on a GPU: memory, copies, order, what is refused.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "refit/device/cuda.h"
#include "refit/exec/clock.h"
#include "tests/conformance/transport_helpers.h"
#include "tests/gpu/exporter_process.h"

namespace refit::device {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using transport::FillPattern;
using transport::HasPattern;
using transport::In;

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = gpu_test::WhyNoGpus(1); !why.empty()) {
      GTEST_SKIP() << why;
    }
    queue_ = Queue(0);
    arena_ = Arena(0, kSize);
    ASSERT_TRUE(queue_ != nullptr && arena_ != nullptr);
  }

  static std::unique_ptr<GpuQueue> Queue(GpuOrdinal gpu) {
    auto queue = GpuQueue::Make(gpu);
    EXPECT_TRUE(queue.ok()) << queue.status().ToString();
    return queue.ok() ? *std::move(queue) : nullptr;
  }
  static std::unique_ptr<GpuArena> Arena(GpuOrdinal gpu, ByteCount size) {
    auto arena = GpuArena::Allocate(gpu, size);
    EXPECT_TRUE(arena.ok()) << arena.status().ToString();
    return arena.ok() ? *std::move(arena) : nullptr;
  }
  void Finish(GpuQueue& queue) {
    const auto ticket = queue.Mark();
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    const Status waited = queue.Wait(*ticket, In(std::chrono::seconds(30)));
    ASSERT_TRUE(waited.ok()) << waited.ToString();
  }
  std::byte* gpu() const { return arena_->memory().bytes.data(); }

  static constexpr ByteCount kSize = 64 * kMiB;
  std::unique_ptr<GpuArena> arena_;
  std::unique_ptr<GpuQueue> queue_;
};

TEST_F(OnGpu, NamesGpusAsEnginesDo) {
  const auto gpu = FindGpu(0);
  ASSERT_TRUE(gpu.ok());
  EXPECT_THAT(gpu->uuid, MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
  EXPECT_GT(gpu->memory_bytes, kGiB);
  const auto none = FindGpu(77);
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.status().remedy(), HasSubstr(gpu->name));
  EXPECT_EQ(GpuQueue::Make(77).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(GpuArena::Allocate(-1, 1).status().code(), StatusCode::kNotFound);
}

TEST_F(OnGpu, SaysHowMuchMemoryIsMissing) {
  const auto arena = GpuArena::Allocate(0, ByteCount{1} << 50);
  EXPECT_EQ(arena.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(arena.status().message(), HasSubstr("GPU 0 has "));
  EXPECT_TRUE(GpuArena::Allocate(0, 1).ok());  // the error stays with nobody
}

// From pageable and page-locked host memory, within the GPU and back: 311 pieces of odd sizes, all in one batch.
TEST_F(OnGpu, CopiesABatchOfPiecesAndNothingElse) {
  auto pinned = PinnedMemory::Allocate(kSize);
  ASSERT_TRUE(pinned.ok());
  const MutableBytes from = (*pinned)->memory().bytes;
  FillPattern(from);
  const auto second = Arena(0, kSize);
  std::vector<std::byte> empty(kSize, transport::kUntouched);
  ASSERT_TRUE(gpu_test::CopyNow(0, empty.data(), second->memory().bytes.data(), kSize).ok());
  std::mt19937_64 random(3);
  std::vector<GpuCopy> up;
  std::vector<GpuCopy> across;
  std::vector<std::pair<ByteCount, ByteCount>> pieces;
  ByteCount at = 0;
  for (int i = 0; i < 311; ++i) {
    const ByteCount size = 1 + random() % 200'000;
    up.push_back({from.data() + at, gpu() + at, size});
    across.push_back({gpu() + at, second->memory().bytes.data() + at, size});
    pieces.emplace_back(at, size);
    at += size + (i % 2 == 0 ? 0 : 1 + random() % 300);  // every other one touches its neighbour
  }
  ASSERT_LT(at, kSize);
  up.push_back({from.data(), gpu(), 0});
  ASSERT_TRUE(queue_->Copy(up).ok());
  ASSERT_TRUE(queue_->Copy(across).ok());
  Finish(*queue_);
  std::vector<std::byte> back(kSize);
  ASSERT_TRUE(gpu_test::CopyNow(0, second->memory().bytes.data(), back.data(), kSize).ok());
  ByteCount end = 0;
  for (const auto& [begin, size] : pieces) {
    EXPECT_TRUE(transport::IsUntouched(Bytes(back).subspan(end, begin - end)));
    EXPECT_TRUE(HasPattern(Bytes(back).subspan(begin, size), begin)) << begin;
    end = begin + size;
  }
  EXPECT_TRUE(transport::IsUntouched(Bytes(back).subspan(end)));
  EXPECT_TRUE(queue_->Copy({}).ok());
}

// Neighbours by address alone: CUDA may refuse one copy over two allocations, so the batch goes piece by piece then.
TEST_F(OnGpu, CopiesNeighboursThatAreTwoAllocations) {
  std::vector<std::unique_ptr<GpuArena>> arenas;
  for (int i = 0; i < 16; ++i) {
    arenas.push_back(Arena(0, 2 * kMiB));
  }
  std::sort(arenas.begin(), arenas.end(),
            [](const auto& a, const auto& b) { return a->memory().bytes.data() < b->memory().bytes.data(); });
  std::vector<std::byte> host(32 * kMiB);
  FillPattern(host);
  std::vector<GpuCopy> up;
  std::vector<GpuCopy> across;
  for (std::size_t i = 0; i < arenas.size(); ++i) {
    std::byte* const at = arenas[i]->memory().bytes.data();
    up.push_back({host.data() + i * 2 * kMiB, at, 2 * kMiB});
    across.push_back({at, gpu() + i * 2 * kMiB, 2 * kMiB});
  }
  const Status uploaded = queue_->Copy(up);
  ASSERT_TRUE(uploaded.ok()) << uploaded.ToString();
  const Status copied = queue_->Copy(across);
  ASSERT_TRUE(copied.ok()) << copied.ToString();
  Finish(*queue_);
  std::vector<std::byte> back(32 * kMiB);
  ASSERT_TRUE(gpu_test::CopyNow(0, gpu(), back.data(), back.size()).ok());
  EXPECT_TRUE(HasPattern(back, 0));
}

TEST_F(OnGpu, ReachesTicketsInOrder) {
  std::vector<GpuTicket> tickets;
  for (int i = 0; i < 100; ++i) {
    const GpuCopy copy{gpu(), gpu() + kSize / 2, kSize / 2};
    ASSERT_TRUE(queue_->Copy({&copy, 1}).ok());
    const auto ticket = queue_->Mark();
    ASSERT_TRUE(ticket.ok());
    tickets.push_back(*ticket);
  }
  EXPECT_EQ(queue_->Wait(tickets.back(), exec::Now()).code(), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(queue_->Wait(tickets[50], In(std::chrono::seconds(30))).ok());
  for (std::size_t i = 0; i <= 50; ++i) {
    EXPECT_TRUE(*queue_->Reached(tickets[i])) << i;
  }
  ASSERT_TRUE(queue_->Wait(tickets.back(), In(std::chrono::seconds(30))).ok());
  EXPECT_TRUE(std::is_sorted(tickets.begin(), tickets.end()));
  EXPECT_FALSE(queue_->Reached(tickets.back() + 1).ok());
  EXPECT_FALSE(queue_->Reached(0).ok());
}

TEST_F(OnGpu, OrdersOneQueueAfterAnother) {
  const auto other = Queue(0);
  std::vector<std::byte> host(kSize / 2);
  FillPattern(host);
  for (int round = 0; round < 5; ++round) {
    // A long copy over the source, then the pattern into it; the other queue reads only then.
    for (int i = 0; i < 50; ++i) {
      const GpuCopy busy{gpu() + kSize / 2, gpu(), kSize / 2};
      ASSERT_TRUE(queue_->Copy({&busy, 1}).ok());
    }
    const GpuCopy up{host.data(), gpu(), kSize / 2};
    ASSERT_TRUE(queue_->Copy({&up, 1}).ok());
    const auto ticket = queue_->Mark();
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(other->After(*queue_, *ticket).ok());
    const GpuCopy across{gpu(), gpu() + kSize / 2, kSize / 2};
    ASSERT_TRUE(other->Copy({&across, 1}).ok());
    Finish(*other);
    std::vector<std::byte> back(kSize / 2);
    ASSERT_TRUE(gpu_test::CopyNow(0, gpu() + kSize / 2, back.data(), back.size()).ok());
    EXPECT_TRUE(HasPattern(back, 0));
  }
  EXPECT_FALSE(other->After(*queue_, 1'000'000).ok());
}

TEST_F(OnGpu, ExportsOneHandleForAllPartsOfAnArena) {
  const auto whole = ExportGpuMemory(arena_->memory());
  const auto part = ExportGpuMemory(arena_->memory().Part(4097, 1000));
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_EQ(whole->handle.size(), 64U);
  EXPECT_EQ(whole->handle, part->handle);
  EXPECT_EQ(part->offset, whole->offset + 4097);
  EXPECT_GE(whole->allocation_size, kSize);
  EXPECT_EQ(whole->gpu_uuid, FindGpu(0)->uuid);
}

TEST_F(OnGpu, RefusesToExportWhatCudaCannot) {
  void* managed = nullptr;
  ASSERT_EQ(cudaMallocManaged(&managed, kMiB), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  void* pooled = nullptr;
  ASSERT_EQ(cudaMallocAsync(&pooled, kMiB, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (void* const memory : {managed, pooled}) {
    const auto exported = ExportGpuMemory({{static_cast<std::byte*>(memory), kMiB}, 0});
    EXPECT_EQ(exported.status().code(), StatusCode::kInvalidArgument) << exported.status().ToString();
    EXPECT_THAT(exported.status().remedy(), HasSubstr("GpuArena"));
  }
  std::vector<std::byte> host(100);
  EXPECT_EQ(ExportGpuMemory(MutableBytes(host)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cudaFreeAsync(pooled, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(OnGpu, OpensNoHandleOfItsOwnAndNoNonsense) {
  auto own = ExportGpuMemory(arena_->memory());
  ASSERT_TRUE(own.ok());
  const auto mapped = GpuMapping::Open(0, *own);
  EXPECT_FALSE(mapped.ok());
  std::fill(own->handle.begin(), own->handle.end(), '\x5a');
  EXPECT_FALSE(GpuMapping::Open(0, *own).ok());
  own->handle.resize(10);
  EXPECT_EQ(GpuMapping::Open(0, *own).status().code(), StatusCode::kInvalidArgument);
  Finish(*queue_);  // nothing of that harmed the GPU
}

}  // namespace
}  // namespace refit::device
