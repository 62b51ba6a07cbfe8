// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// cuda_ipc in the suite of tests/conformance, and from GPU to GPU. The exporter is another process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"
#include "refit/transport/cuda_ipc/cuda_ipc_transport.h"
#include "tests/conformance/transport_suite.h"
#include "tests/gpu/exporter_process.h"

namespace refit::transport {
namespace {

using gpu_test::CopyNow;
using gpu_test::Exporter;
using gpu_test::OtherExporter;

// The suite writes exported memory as a host does. So it gets a shadow of it, which goes to the exporter's GPU before
// each fetch; what is fetched lands in host memory. GPU to GPU is further down.
class Shadows {
 public:
  explicit Shadows(device::GpuOrdinal gpu) : gpu_(gpu) {}
  ~Shadows() {
    for (const auto& [begin, shadow] : shadows_) {
      Exporter().Free(shadow.number).ok();
    }
  }
  Shadows(const Shadows&) = delete;
  Shadows& operator=(const Shadows&) = delete;

  MutableBytes Allocate(ByteCount size) {
    const auto number = Exporter().Allocate(gpu_, size);
    EXPECT_TRUE(number.ok()) << number.status().ToString();
    const MutableBytes memory = Exporter().shared().subspan(used_, size);
    used_ += RoundUp(size, 4096);
    shadows_[memory.data()] = {memory, number.ok() ? *number : 0};
    return memory;
  }
  Result<Descriptor> Export(MutableBytes memory) {
    return Exporter().Export(shadows_.at(memory.data()).number, 0, memory.size());
  }
  Status Upload() {
    for (const auto& [begin, shadow] : shadows_) {
      REFIT_RETURN_IF_ERROR(Exporter().Upload(shadow.number, shadow.memory));
    }
    return OkStatus();
  }

 private:
  struct Shadow {
    MutableBytes memory;
    std::uint64_t number = 0;
  };
  const device::GpuOrdinal gpu_;
  ByteCount used_ = 0;
  std::map<std::byte*, Shadow> shadows_;
};

class RemoteTransport final : public Transport {
 public:
  explicit RemoteTransport(Shadows& shadows) : shadows_(shadows) {}
  std::string_view name() const override { return "cuda_ipc"; }
  bool can_map_in_place() const override { return false; }  // not as the suite would use it
  Result<Descriptor> Export(device::Memory memory) override { return shadows_.Export(memory.bytes); }
  void Unexport(const Descriptor& descriptor) override { EXPECT_TRUE(Exporter().Unexport(descriptor).ok()); }
  Result<std::unique_ptr<Link>> Bind(std::string_view, Instant) override {
    return Unimplemented("the other end binds");
  }
  std::string Address() const override {
    const auto address = Exporter().Address();
    EXPECT_TRUE(address.ok()) << address.status().ToString();
    return address.ok() ? *address : std::string();
  }

 private:
  Shadows& shadows_;
};

class UploadingLink final : public Link {
 public:
  UploadingLink(Shadows& shadows, std::unique_ptr<Link> link) : shadows_(shadows), link_(std::move(link)) {}
  Result<OpId> Fetch(const Descriptor& descriptor, Range range, device::Memory into) override {
    REFIT_RETURN_IF_ERROR(shadows_.Upload());
    return link_->Fetch(descriptor, range, into);
  }
  OpState Poll(OpId op) override { return link_->Poll(op); }
  Status error(OpId op) const override { return link_->error(op); }
  FenceOutcome Fence(Instant deadline) override { return link_->Fence(deadline); }
  Result<device::Memory> MapInPlace(const Descriptor&) override { return Unimplemented("see RemoteTransport"); }
  void Close() override { link_->Close(); }

 private:
  Shadows& shadows_;
  std::unique_ptr<Link> link_;
};

class UploadingTransport final : public Transport {
 public:
  explicit UploadingTransport(Shadows& shadows) : shadows_(shadows) {}
  std::string_view name() const override { return "cuda_ipc"; }
  bool can_map_in_place() const override { return false; }
  Result<Descriptor> Export(device::Memory memory) override { return shadows_.Export(memory.bytes); }
  void Unexport(const Descriptor&) override {}
  Result<std::unique_ptr<Link>> Bind(std::string_view address, Instant deadline) override {
    if (transport_ == nullptr) {
      REFIT_ASSIGN_OR_RETURN(transport_, CudaIpcTransport::Create());
    }
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, transport_->Bind(address, deadline));
    return std::unique_ptr<Link>(std::make_unique<UploadingLink>(shadows_, std::move(link)));
  }
  std::string Address() const override { return "cuda_ipc:"; }

 private:
  Shadows& shadows_;
  std::unique_ptr<CudaIpcTransport> transport_;
};

template <device::GpuOrdinal kGpu>
class CudaIpcBackend {
 public:
  std::string WhyNot() { return gpu_test::WhyNoGpus(kGpu + 1); }
  Transport& exporter() { return exporter_; }
  Transport& reader() { return reader_; }
  MutableBytes Allocate(ByteCount size) { return shadows_.Allocate(size); }
  std::string NobodyAddress() { return exporter_.Address() + "0"; }

 private:
  Shadows shadows_{kGpu};
  RemoteTransport exporter_{shadows_};
  UploadingTransport reader_{shadows_};
};

INSTANTIATE_TYPED_TEST_SUITE_P(CudaIpcGpu0, TransportSuite, CudaIpcBackend<0>);
INSTANTIATE_TYPED_TEST_SUITE_P(CudaIpcGpu1, TransportSuite, CudaIpcBackend<1>);

// GPU to GPU: where the exporter's memory is, and the reader's.
struct Pair {
  device::GpuOrdinal exporter = 0;
  device::GpuOrdinal reader = 0;
};

class CudaIpcBetween : public ::testing::TestWithParam<Pair> {
 protected:
  static constexpr ByteCount kSize = 40'000'003;

  void SetUp() override {
    const auto needed = static_cast<std::size_t>(std::max(GetParam().exporter, GetParam().reader)) + 1;
    if (const std::string why = gpu_test::WhyNoGpus(needed); !why.empty()) {
      GTEST_SKIP() << why;
    }
    FillPattern(Exporter().shared().first(kSize));
    auto number = Exporter().Allocate(GetParam().exporter, kSize + 64);
    ASSERT_TRUE(number.ok()) << number.status().ToString();
    number_ = *number;
    ASSERT_TRUE(Exporter().Upload(number_, Exporter().shared().first(kSize)).ok());
    auto descriptor = Exporter().Export(number_, 0, kSize);
    ASSERT_TRUE(descriptor.ok()) << descriptor.status().ToString();
    descriptor_ = *descriptor;
    auto transport = CudaIpcTransport::Create();
    ASSERT_TRUE(transport.ok()) << transport.status().ToString();
    transport_ = *std::move(transport);
    auto link = transport_->Bind(*Exporter().Address(), In(std::chrono::seconds(5)));
    ASSERT_TRUE(link.ok()) << link.status().ToString();
    link_ = *std::move(link);
    auto landing = device::GpuArena::Allocate(GetParam().reader, kSize);
    ASSERT_TRUE(landing.ok()) << landing.status().ToString();
    landing_ = *std::move(landing);
    Clear();
  }
  void TearDown() override {
    link_.reset();  // before the exporter frees what it mapped
    if (number_ != 0) {
      Exporter().Unexport(descriptor_).ok();
      Exporter().Free(number_).ok();
    }
  }

  void Clear() {
    const std::vector<std::byte> untouched(kSize, kUntouched);
    ASSERT_TRUE(CopyNow(GetParam().reader, untouched.data(), landing_->memory().bytes.data(), kSize).ok());
  }
  std::vector<std::byte> Read(const device::Memory& memory) {
    std::vector<std::byte> bytes(memory.size());
    const Status copied = CopyNow(GetParam().reader, memory.bytes.data(), bytes.data(), bytes.size());
    EXPECT_TRUE(copied.ok()) << copied.ToString();
    return bytes;
  }

  std::uint64_t number_ = 0;
  Descriptor descriptor_;
  std::unique_ptr<CudaIpcTransport> transport_;
  std::unique_ptr<device::GpuArena> landing_;
  std::unique_ptr<Link> link_;
};

TEST_P(CudaIpcBetween, FetchesExactlyTheRangeIntoGpuMemory) {
  const auto op = link_->Fetch(descriptor_, {77, 5'000'001}, landing_->memory().Part(1000, 5'000'001));
  ASSERT_TRUE(op.ok()) << op.status().ToString();
  ASSERT_EQ(End(*link_, *op), OpState::kDone) << link_->error(*op).ToString();
  const std::vector<std::byte> landed = Read(landing_->memory());
  EXPECT_TRUE(IsUntouched(Bytes(landed).first(1000)));
  EXPECT_TRUE(HasPattern(Bytes(landed).subspan(1000, 5'000'001), 77));
  EXPECT_TRUE(IsUntouched(Bytes(landed).subspan(5'001'001)));
}

TEST_P(CudaIpcBetween, KeepsManyFetchesApart) {
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
TEST_P(CudaIpcBetween, WritesNothingAfterAFence) {
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(link_->Fetch(descriptor_, {0, kSize}, landing_->memory()).ok());
  }
  EXPECT_EQ(link_->Fence(exec::Now()), FenceOutcome::kUnknown);
  ASSERT_EQ(link_->Fence(In(std::chrono::seconds(10))), FenceOutcome::kFenced);
  Clear();
  EXPECT_TRUE(IsUntouched(Read(landing_->memory())));
}

TEST_P(CudaIpcBetween, MapsTheMemoryItself) {
  const auto mapped = link_->MapInPlace(descriptor_);
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  ASSERT_EQ(mapped->size(), kSize);
  EXPECT_TRUE(mapped->gpu.has_value());
  EXPECT_TRUE(HasPattern(Read(*mapped), 0));
  const std::vector<std::byte> change(100, std::byte{99});
  ASSERT_TRUE(CopyNow(*mapped->gpu, change.data(), mapped->bytes.data() + 17, change.size()).ok());
  const MutableBytes shared = Exporter().shared().first(200);
  ASSERT_TRUE(Exporter().Download(number_, shared).ok());
  EXPECT_TRUE(HasPattern(shared.first(17), 0));
  EXPECT_TRUE(std::equal(change.begin(), change.end(), shared.begin() + 17));
  EXPECT_EQ(link_->MapInPlace(descriptor_)->bytes.data(), mapped->bytes.data());
}

TEST_P(CudaIpcBetween, OpensAHandleOnceForAllLinks) {
  const auto other = transport_->Bind(*Exporter().Address(), In(std::chrono::seconds(5)));
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
  const auto number = OtherExporter().Allocate(GetParam().exporter, 4096);
  ASSERT_TRUE(number.ok()) << number.status().ToString();
  const auto theirs = OtherExporter().Export(*number, 0, 4096);
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
  gpu_test::ExporterProcess& victim = OtherExporter();
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

INSTANTIATE_TEST_SUITE_P(Gpus, CudaIpcBetween, ::testing::Values(Pair{0, 0}, Pair{1, 0}, Pair{0, 1}),
                         [](const auto& between) {
                           return StrCat("From", between.param.exporter, "To", between.param.reader);
                         });

}  // namespace
}  // namespace refit::transport
