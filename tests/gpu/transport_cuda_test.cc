// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What cuda_ipc alone does from GPU to GPU: it maps memory, and finds a dead exporter out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "refit/device/cuda.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"
#include "tests/gpu/transport_fixtures.h"

namespace refit::transport {
namespace {

using gpu_test::CopyNow;
using gpu_test::OtherExporter;

class CudaIpcBetween : public BetweenGpus {};

TEST_P(CudaIpcBetween, MapsTheMemoryItself) {
  const auto mapped = link_->MapInPlace(descriptor_);
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  ASSERT_EQ(mapped->size(), kSize);
  EXPECT_TRUE(mapped->gpu.has_value());
  EXPECT_TRUE(HasPattern(Read(*mapped), 0));
  const std::vector<std::byte> change(100, std::byte{99});
  ASSERT_TRUE(CopyNow(*mapped->gpu, change.data(), mapped->bytes.data() + 17, change.size()).ok());
  const MutableBytes shared = exporter().shared().first(200);
  ASSERT_TRUE(exporter().Download(number_, shared).ok());
  EXPECT_TRUE(HasPattern(shared.first(17), 0));
  EXPECT_TRUE(std::equal(change.begin(), change.end(), shared.begin() + 17));
  EXPECT_EQ(link_->MapInPlace(descriptor_)->bytes.data(), mapped->bytes.data());
}

TEST_P(CudaIpcBetween, OpensAHandleOnceForAllLinks) {
  const auto other = transport_->Bind(*exporter().Address(), In(std::chrono::seconds(5)));
  ASSERT_TRUE(other.ok());
  const auto first = link_->MapInPlace(descriptor_);
  const auto second = (*other)->MapInPlace(descriptor_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->bytes.data(), second->bytes.data());
  (*other)->Close();
  EXPECT_TRUE(HasPattern(Read(*first), 0));
}

TEST_P(CudaIpcBetween, BelievesNoSizeOfAPeer) {
  auto memory = ParseCudaIpcDescriptor(descriptor_);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(device::GpuMapping::Open(GetParam().reader, memory->exported).ok());
  memory->exported.allocation_size += kGiB;
  EXPECT_EQ(device::GpuMapping::Open(GetParam().reader, memory->exported).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_P(CudaIpcBetween, RefusesMemoryOfAnotherPeerAndOfItself) {
  const auto number = OtherExporter("cuda_ipc").Allocate(GetParam().exporter, 4096);
  ASSERT_TRUE(number.ok()) << number.status().ToString();
  const auto theirs = OtherExporter("cuda_ipc").Export(*number, 0, 4096);
  ASSERT_TRUE(theirs.ok());
  EXPECT_EQ(link_->Fetch(*theirs, {0, 10}, landing_->memory().Part(0, 10)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(link_->MapInPlace(*theirs).status().code(), StatusCode::kNotFound);
  const auto own = transport_->Bind(transport_->Address(), In(std::chrono::seconds(5)));
  EXPECT_EQ(own.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(own.status().message(), ::testing::HasSubstr("is this process"));
  std::vector<std::byte> host(100);
  EXPECT_EQ(transport_->Export(MutableBytes(host)).status().code(), StatusCode::kInvalidArgument);
}

// kill -9 of the exporter: no new link, no handle opened, and the GPU still works.
TEST_P(CudaIpcBetween, FindsADeadExporterOut) {
  gpu_test::ExporterProcess& victim = OtherExporter("cuda_ipc");
  const auto number = victim.Allocate(GetParam().exporter, 4096);
  if (!number.ok()) {
    GTEST_SKIP() << "killed by the pair before: " << number.status().ToString();
  }
  const auto descriptor = victim.Export(*number, 0, 4096);
  const auto address = victim.Address();
  const auto link = transport_->Bind(*address, In(std::chrono::seconds(5)));
  ASSERT_TRUE(link.ok()) << link.status().ToString();
  victim.Kill();
  EXPECT_FALSE((*link)->Fetch(*descriptor, {0, 10}, landing_->memory().Part(0, 10)).ok());
  EXPECT_EQ(transport_->Bind(*address, In(std::chrono::seconds(5))).status().code(), StatusCode::kUnavailable);
  const auto op = link_->Fetch(descriptor_, {0, 10}, landing_->memory().Part(0, 10));
  ASSERT_TRUE(op.ok()) << op.status().ToString();
  EXPECT_EQ(End(*link_, *op), OpState::kDone);
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudaIpcBetween,
                         ::testing::Values(Pair{"cuda_ipc", 0, 0}, Pair{"cuda_ipc", 1, 0}, Pair{"cuda_ipc", 0, 1}),
                         NameOfPair);

}  // namespace
}  // namespace refit::transport
