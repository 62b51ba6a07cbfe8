// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// cuda_ipc and NIXL in the suite of tests/conformance, and from GPU to GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "refit/exec/clock.h"
#include "tests/conformance/transport_suite.h"
#include "tests/gpu/transport_fixtures.h"

namespace refit::transport {
namespace {

template <device::GpuOrdinal kGpu>
class CudaIpcBackend : public GpuBackend {
 public:
  CudaIpcBackend() : GpuBackend("cuda_ipc", kGpu) {}
  std::string NobodyAddress() { return exporter().Address() + "0"; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(CudaIpcGpu0, TransportSuite, CudaIpcBackend<0>);
INSTANTIATE_TYPED_TEST_SUITE_P(CudaIpcGpu1, TransportSuite, CudaIpcBackend<1>);

// Of a process that was killed. It exported host memory: a dead peer with GPU memory alone is not found out by Bind.
std::string MakeNobody() {
  gpu_test::ExporterProcess& victim = gpu_test::OtherExporter("nixl");
  const auto exported = victim.ExportShared();
  EXPECT_TRUE(exported.ok()) << exported.status().ToString();
  const auto address = victim.Address();
  EXPECT_TRUE(address.ok()) << address.status().ToString();
  victim.Kill();
  return address.ok() ? *address : std::string();
}

const std::string& Nobody() {
  static const std::string nobody = MakeNobody();
  return nobody;
}

template <device::GpuOrdinal kGpu>
class NixlBackend : public GpuBackend {
 public:
  static constexpr bool kExportsInAddress = true;

  NixlBackend() : GpuBackend("nixl", kGpu) {}
  std::string NobodyAddress() { return Nobody(); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(NixlGpu0, TransportSuite, NixlBackend<0>);
INSTANTIATE_TYPED_TEST_SUITE_P(NixlGpu1, TransportSuite, NixlBackend<1>);

TEST_P(BetweenGpus, FetchesExactlyTheRangeIntoGpuMemory) {
  const auto op = link_->Fetch(descriptor_, {77, 5'000'001}, landing_->memory().Part(1000, 5'000'001));
  ASSERT_TRUE(op.ok()) << op.status().ToString();
  ASSERT_EQ(End(*link_, *op), OpState::kDone) << link_->error(*op).ToString();
  const std::vector<std::byte> landed = Read(landing_->memory());
  EXPECT_TRUE(IsUntouched(Bytes(landed).first(1000)));
  EXPECT_TRUE(HasPattern(Bytes(landed).subspan(1000, 5'000'001), 77));
  EXPECT_TRUE(IsUntouched(Bytes(landed).subspan(5'001'001)));
}

TEST_P(BetweenGpus, KeepsManyFetchesApart) {
  constexpr ByteCount kPiece = 10'007;
  std::vector<OpId> ops;
  for (ByteCount at = 0; at + kPiece <= kSize; at += kPiece) {
    const auto op = link_->Fetch(descriptor_, {at, kPiece}, landing_->memory().Part(at, kPiece));
    ASSERT_TRUE(op.ok()) << op.status().ToString();
    ops.push_back(*op);
  }
  std::reverse(ops.begin(), ops.end());
  for (const OpId op : ops) {
    EXPECT_EQ(End(*link_, op), OpState::kDone);
  }
  EXPECT_TRUE(HasPattern(Bytes(Read(landing_->memory())).first(ops.size() * kPiece), 0));
}

// RX-ASM-T2: a fence that is true, on memory that only the GPU writes.
TEST_P(BetweenGpus, WritesNothingAfterAFence) {
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(link_->Fetch(descriptor_, {0, kSize}, landing_->memory()).ok());
  }
  if (GetParam().transport == "cuda_ipc") {  // NIXL's Fetch may take as long as the copy
    EXPECT_EQ(link_->Fence(exec::Now()), FenceOutcome::kUnknown);
  }
  ASSERT_EQ(link_->Fence(In(std::chrono::seconds(10))), FenceOutcome::kFenced);
  Clear();
  EXPECT_TRUE(IsUntouched(Read(landing_->memory())));
}

INSTANTIATE_TEST_SUITE_P(CudaIpc, BetweenGpus,
                         ::testing::Values(Pair{"cuda_ipc", 0, 0}, Pair{"cuda_ipc", 1, 0}, Pair{"cuda_ipc", 0, 1}),
                         NameOfPair);
INSTANTIATE_TEST_SUITE_P(Nixl, BetweenGpus,
                         ::testing::Values(Pair{"nixl", 0, 0}, Pair{"nixl", 1, 0}, Pair{"nixl", 0, 1}), NameOfPair);

}  // namespace
}  // namespace refit::transport
