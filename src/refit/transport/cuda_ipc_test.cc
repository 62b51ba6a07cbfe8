// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What cuda_ipc does without a GPU: texts, the table of exports, refusals. The rest is in tests/gpu/.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"
#include "refit/transport/cuda_ipc/cuda_ipc_transport.h"
#include "refit/transport/cuda_ipc/export_table.h"
#include "refit/transport/factory.h"
#include "refit/transport/loopback/loopback_transport.h"
#include "refit/transport/shm/shm_transport.h"

namespace refit::transport {
namespace {

using ::testing::HasSubstr;

CudaIpcMemory SomeMemory() {
  CudaIpcMemory memory;
  memory.exported.gpu_uuid = "1b6a5f3e-0c1d-4f5a-9b8c-7d6e5f4a3b2c";
  for (int i = 0; i < 64; ++i) {
    memory.exported.handle += static_cast<char>(i * 7);
  }
  memory.exported.allocation_size = 1 << 21;
  memory.exported.offset = 4096;
  memory.size = 300'007;
  return memory;
}

TEST(CudaIpcDescriptor, ReadsWhatItWrites) {
  const CudaIpcMemory memory = SomeMemory();
  const Descriptor descriptor = MakeCudaIpcDescriptor(memory);
  EXPECT_LE(descriptor.text.size(), 512U);
  const auto parsed = ParseCudaIpcDescriptor(descriptor);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->exported.gpu_uuid, memory.exported.gpu_uuid);
  EXPECT_EQ(parsed->exported.handle, memory.exported.handle);
  EXPECT_EQ(parsed->exported.allocation_size, memory.exported.allocation_size);
  EXPECT_EQ(parsed->exported.offset, memory.exported.offset);
  EXPECT_EQ(parsed->size, memory.size);
}

TEST(CudaIpcDescriptor, IsRefusedWhereItIsNoneOrLeavesItsAllocation) {
  const std::string good = MakeCudaIpcDescriptor(SomeMemory()).text;
  const std::string head = good.substr(0, good.find(":2097152:"));
  for (const std::string& text :
       {std::string(), std::string("cuda_ipc"), std::string(":::::"), std::string("cuda_ipc:::::"), good + "x",
        good + ":", good + ":1", " " + good, head, head + ":2097152", head + ":2097152:0", head + ":2097152:0:2097153",
        head + ":2097152:2097152:1", head + ":2097152:-1:1", head + ":2097152:01:1",
        head + ":2097152:18446744073709551615:2", head + ":99999999999999999999:0:1", std::string(1 << 20, ':')}) {
    EXPECT_FALSE(ParseCudaIpcDescriptor({text}).ok()) << text.substr(0, 300);
  }
  EXPECT_TRUE(ParseCudaIpcDescriptor({head + ":2097152:2097152:0"}).ok());
}

TEST(ExportTable, TellsWhatIsExportedNow) {
  const auto mine = ExportTable::Create();
  ASSERT_TRUE(mine.ok()) << mine.status().ToString();
  const auto seen = ExportTable::Open((*mine)->name());
  ASSERT_TRUE(seen.ok()) << seen.status().ToString();
  EXPECT_FALSE((*seen)->Has("a"));
  EXPECT_TRUE((*mine)->Add("a").ok());
  EXPECT_TRUE((*mine)->Add("b").ok());
  EXPECT_TRUE((*seen)->Has("a"));
  EXPECT_FALSE((*seen)->Has("a0"));
  (*mine)->Remove("a");
  (*mine)->Remove("never added");
  EXPECT_FALSE((*seen)->Has("a"));
  EXPECT_TRUE((*seen)->Has("b"));
}

TEST(ExportTable, CountsWhatIsExportedTwice) {
  const auto table = ExportTable::Create();
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE((*table)->Add("a").ok());
  EXPECT_TRUE((*table)->Add("a").ok());
  (*table)->Remove("a");
  EXPECT_TRUE((*table)->Has("a"));
  (*table)->Remove("a");
  EXPECT_FALSE((*table)->Has("a"));
}

TEST(ExportTable, SaysWhenItIsFullAndTakesMoreAfterwards) {
  const auto table = ExportTable::Create();
  ASSERT_TRUE(table.ok());
  for (std::size_t i = 0; i < ExportTable::kCapacity; ++i) {
    ASSERT_TRUE((*table)->Add(StrCat(i)).ok());
  }
  EXPECT_EQ((*table)->Add("one more").code(), StatusCode::kResourceExhausted);
  (*table)->Remove("17");
  EXPECT_TRUE((*table)->Add("one more").ok());
}

TEST(ExportTable, HasNothingOnceItsOwnerCutIt) {
  const auto mine = ExportTable::Create();
  ASSERT_TRUE(mine.ok());
  EXPECT_TRUE((*mine)->Add("a").ok());
  const auto seen = ExportTable::Open((*mine)->name());
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(truncate(("/dev/shm" + (*mine)->name()).c_str(), 0), 0);
  EXPECT_FALSE((*seen)->Has("a"));
}

TEST(MakeTransport, SaysWhatCudaIpcNeeds) {
  const auto made = MakeTransport("cuda_ipc");
  if (made.ok()) {
    GTEST_SKIP() << "this machine has a GPU";
  }
  EXPECT_EQ(made.status().code(), device::BuiltWithCuda() ? StatusCode::kUnavailable : StatusCode::kUnimplemented);
  EXPECT_FALSE(made.status().remedy().empty());
  EXPECT_EQ(device::ListGpus().status().code(), made.status().code());
}

// A GPU pointer given to a host transport is refused by name, unread.
TEST(HostTransports, RefuseTheMemoryOfAGpu) {
  const device::Memory gpu({reinterpret_cast<std::byte*>(0x7f0000000000), 4096}, 3);
  ShmTransport shm;
  LoopbackHub hub;
  LoopbackTransport loopback(hub);
  for (Transport* const transport : {static_cast<Transport*>(&shm), static_cast<Transport*>(&loopback)}) {
    const auto exported = transport->Export(gpu);
    EXPECT_EQ(exported.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(exported.status().message(), HasSubstr("cannot reach the memory of GPU 3"));
    EXPECT_THAT(exported.status().message(), HasSubstr(std::string(transport->name())));
  }
  const auto host = shm.Allocate("host", 4096);
  ASSERT_TRUE(host.ok());
  const auto descriptor = shm.Export(*host);
  const auto link = shm.Bind(shm.Address(), Instant());
  ASSERT_TRUE(descriptor.ok() && link.ok());
  const auto fetched = (*link)->Fetch(*descriptor, {0, 4096}, gpu);
  EXPECT_EQ(fetched.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(fetched.status().message(), HasSubstr("shm cannot reach the memory of GPU 3"));
}

}  // namespace
}  // namespace refit::transport
