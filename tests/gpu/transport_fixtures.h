// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the tests of every transport need on GPUs. The exporter is another process.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/transport/transport.h"
#include "tests/conformance/transport_helpers.h"
#include "tests/gpu/exporter_process.h"

namespace refit::transport {

// The suite writes exported memory as a host does. So it gets a shadow of it, which goes to the exporter's GPU before
// each fetch; what is fetched lands in host memory. GPU to GPU is further down.
class Shadows {
 public:
  Shadows(std::string_view transport, device::GpuOrdinal gpu)
      : transport_(transport), process_(gpu_test::Exporter(transport)), gpu_(gpu) {}
  ~Shadows() {
    for (const auto& [begin, shadow] : shadows_) {
      process_.Unexport(shadow.descriptor).ok();
      process_.Free(shadow.number).ok();
    }
  }
  Shadows(const Shadows&) = delete;
  Shadows& operator=(const Shadows&) = delete;

  const std::string& transport() const { return transport_; }
  gpu_test::ExporterProcess& process() { return process_; }
  MutableBytes Allocate(ByteCount size) {
    const auto number = process_.Allocate(gpu_, size);
    EXPECT_TRUE(number.ok()) << number.status().ToString();
    const MutableBytes memory = process_.shared().subspan(used_, size);
    used_ += RoundUp(size, 4096);
    shadows_[memory.data()] = {memory, number.ok() ? *number : 0, {}};
    return memory;
  }
  Result<Descriptor> Export(MutableBytes memory) {
    Shadow& shadow = shadows_.at(memory.data());
    REFIT_ASSIGN_OR_RETURN(shadow.descriptor, process_.Export(shadow.number, 0, memory.size()));
    return shadow.descriptor;
  }
  Status Upload() {
    for (const auto& [begin, shadow] : shadows_) {
      REFIT_RETURN_IF_ERROR(process_.Upload(shadow.number, shadow.memory));
    }
    return OkStatus();
  }

 private:
  struct Shadow {
    MutableBytes memory;
    std::uint64_t number = 0;
    Descriptor descriptor;
  };
  const std::string transport_;
  gpu_test::ExporterProcess& process_;
  const device::GpuOrdinal gpu_;
  ByteCount used_ = 0;
  std::map<std::byte*, Shadow> shadows_;
};

class RemoteTransport final : public Transport {
 public:
  explicit RemoteTransport(Shadows& shadows) : shadows_(shadows) {}
  std::string_view name() const override { return shadows_.transport(); }
  bool can_map_in_place() const override { return false; }  // not as the suite would use it
  Result<Descriptor> Export(device::Memory memory) override { return shadows_.Export(memory.bytes); }
  void Unexport(const Descriptor& descriptor) override { EXPECT_TRUE(shadows_.process().Unexport(descriptor).ok()); }
  Result<std::unique_ptr<Link>> Bind(std::string_view, Instant) override {
    return Unimplemented("the other end binds");
  }
  std::string Address() const override {
    const auto address = shadows_.process().Address();
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
  std::string_view name() const override { return shadows_.transport(); }
  bool can_map_in_place() const override { return false; }
  Result<Descriptor> Export(device::Memory memory) override { return shadows_.Export(memory.bytes); }
  void Unexport(const Descriptor&) override {}
  Result<std::unique_ptr<Link>> Bind(std::string_view address, Instant deadline) override {
    if (transport_ == nullptr) {
      REFIT_ASSIGN_OR_RETURN(transport_, gpu_test::Reader(shadows_.transport()));
    }
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, transport_->Bind(address, deadline));
    return std::unique_ptr<Link>(std::make_unique<UploadingLink>(shadows_, std::move(link)));
  }
  std::string Address() const override { return shadows_.transport() + ":"; }

 private:
  Shadows& shadows_;
  std::shared_ptr<Transport> transport_;
};

// For the suite: memory of a GPU in another process, read from here.
class GpuBackend {
 public:
  GpuBackend(std::string_view transport, device::GpuOrdinal gpu) : shadows_(transport, gpu), gpu_(gpu) {}
  std::string WhyNot() { return gpu_test::WhyNot(shadows_.transport(), static_cast<std::size_t>(gpu_) + 1); }
  Transport& exporter() { return exporter_; }
  Transport& reader() { return reader_; }
  MutableBytes Allocate(ByteCount size) { return shadows_.Allocate(size); }

 private:
  Shadows shadows_;
  const device::GpuOrdinal gpu_;
  RemoteTransport exporter_{shadows_};
  UploadingTransport reader_{shadows_};
};

// GPU to GPU: where the exporter's memory is, and the reader's.
struct Pair {
  std::string transport;
  device::GpuOrdinal exporter = 0;
  device::GpuOrdinal reader = 0;
};

class BetweenGpus : public ::testing::TestWithParam<Pair> {
 protected:
  static constexpr ByteCount kSize = 40'000'003;

  void SetUp() override {
    const auto needed = static_cast<std::size_t>(std::max(GetParam().exporter, GetParam().reader)) + 1;
    if (const std::string why = gpu_test::WhyNot(GetParam().transport, needed); !why.empty()) {
      GTEST_SKIP() << why;
    }
    FillPattern(exporter().shared().first(kSize));
    auto number = exporter().Allocate(GetParam().exporter, kSize + 64);
    ASSERT_TRUE(number.ok()) << number.status().ToString();
    number_ = *number;
    ASSERT_TRUE(exporter().Upload(number_, exporter().shared().first(kSize)).ok());
    auto descriptor = exporter().Export(number_, 0, kSize);
    ASSERT_TRUE(descriptor.ok()) << descriptor.status().ToString();
    descriptor_ = *descriptor;
    auto transport = gpu_test::Reader(GetParam().transport);
    ASSERT_TRUE(transport.ok()) << transport.status().ToString();
    transport_ = *std::move(transport);
    auto link = transport_->Bind(*exporter().Address(), In(std::chrono::seconds(5)));
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
      exporter().Unexport(descriptor_).ok();
      exporter().Free(number_).ok();
    }
  }

  gpu_test::ExporterProcess& exporter() const { return gpu_test::Exporter(GetParam().transport); }
  void Clear() {
    const std::vector<std::byte> untouched(kSize, kUntouched);
    ASSERT_TRUE(gpu_test::CopyNow(GetParam().reader, untouched.data(), landing_->memory().bytes.data(), kSize).ok());
  }
  std::vector<std::byte> Read(const device::Memory& memory) {
    std::vector<std::byte> bytes(memory.size());
    const Status copied = gpu_test::CopyNow(GetParam().reader, memory.bytes.data(), bytes.data(), bytes.size());
    EXPECT_TRUE(copied.ok()) << copied.ToString();
    return bytes;
  }

  std::uint64_t number_ = 0;
  Descriptor descriptor_;
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<device::GpuArena> landing_;
  std::unique_ptr<Link> link_;
};

inline std::string NameOfPair(const ::testing::TestParamInfo<Pair>& pair) {
  return StrCat("From", pair.param.exporter, "To", pair.param.reader);
}

}  // namespace refit::transport
