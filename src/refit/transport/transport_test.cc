// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What is not every backend's: the factory, texts of shm. The common contract is tests/conformance/transport_suite.h.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/transport/factory.h"
#include "refit/transport/op_table.h"
#include "refit/transport/shm/shm_transport.h"

namespace refit::transport {
namespace {

using ::testing::HasSubstr;

TEST(MakeTransport, SaysWhichThereAre) {
  EXPECT_EQ((*MakeTransport("auto"))->name(), "shm");
  EXPECT_EQ((*MakeTransport("shm"))->name(), "shm");
  EXPECT_EQ((*MakeTransport("loopback"))->name(), "loopback");
  EXPECT_EQ(MakeTransport("ucx").status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(MakeTransport("ucx").status().ToString(), HasSubstr("this build has: auto, shm"));
  EXPECT_THAT(MakeTransport("nixl").status().ToString(), HasSubstr("transport.nixl.library"));  // must be told where
  EXPECT_EQ(MakeTransport("rdma").status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(MakeTransport("rdma").status().ToString(), HasSubstr("nixl, loopback"));
}

TEST(MakeTransport, LetsTwoLoopbackEndsOfOneProcessMeet) {
  const auto one = MakeTransport("loopback");
  const auto two = MakeTransport("loopback");
  EXPECT_TRUE((*two)->Bind((*one)->Address(), exec::Now()).ok());
}

TEST(ParseShmDescriptor, ReadsOnlyOurOwnText) {
  const auto object = ParseShmDescriptor({"shm:/refit-12-34-load-1:4096"});
  ASSERT_TRUE(object.ok());
  EXPECT_EQ(object->name, "/refit-12-34-load-1");
  EXPECT_EQ(object->size, 4096U);
  for (const std::string& text :
       {std::string(), std::string("shm:"), std::string("shm::"), std::string("shm:/refit-1-2-a"),
        std::string("shm:/refit-1-2-a:"), std::string("shm:/refit-1-2-a:0"), std::string("shm:/refit-1-2-a:-1"),
        std::string("shm:/refit-1-2-a:+1"), std::string("shm:/refit-1-2-a: 1"), std::string("shm:/refit-1-2-a:1x"),
        std::string("shm:/refit-1-2-a:99999999999999999999999"), std::string("shm:/refit-1-2-../../etc/passwd:1"),
        std::string("shm:/etc/passwd:1"), std::string("shm:refit-1-2-a:1"), std::string("shm:/psm_1234:1"),
        std::string("loopback:1:1"), std::string("shm:/refit-1-2-a\0b:1", 19),
        "shm:/refit-1-2-" + std::string(600, 'a') + ":1"}) {
    EXPECT_FALSE(ParseShmDescriptor({text}).ok()) << text;
  }
}

TEST(ShmTransport, RefusesPeersElsewhereAndTextThatIsNoAddress) {
  ShmTransport transport;
  const Instant deadline = exec::Now();
  const std::string self = transport.Address();
  EXPECT_TRUE(transport.Bind(self, deadline).ok());
  EXPECT_EQ(transport.Bind("host:11111111-2222-3333-4444-555555555555:1:1", deadline).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(transport.Bind(self + "9", deadline).status().code(), StatusCode::kUnavailable);  // another start time
  for (const std::string_view text :
       {"", "host:", "host:::", "host:a:1", "host:a:1:", "host:a::1", "host:a:-1:1", "loopback:1"}) {
    EXPECT_EQ(transport.Bind(text, deadline).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(ShmTransport, ExportsOnlyWholeObjectsOfItsOwn) {
  ShmTransport transport;
  const auto memory = transport.Allocate("load", 4096);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(transport.Export(*memory).ok());
  EXPECT_FALSE(transport.Export(memory->first(100)).ok());
  std::byte other[10];
  EXPECT_FALSE(transport.Export(MutableBytes(other)).ok());
}

TEST(ShmTransport, LeavesNothingBehind) {
  std::string name;
  {
    ShmTransport transport;
    const auto memory = transport.Allocate("load", 4096);
    const auto exported = transport.Export(*memory);
    name = ParseShmDescriptor(*exported)->name;
    EXPECT_TRUE(device::SharedMemory::Open(name, 4096).ok());
    transport.Release(*memory);
    EXPECT_FALSE(device::SharedMemory::Open(name, 4096).ok());
    const auto again = transport.Allocate("load", 4096);
    name = ParseShmDescriptor(*transport.Export(*again))->name;
  }
  EXPECT_EQ(device::SharedMemory::Open(name, 4096).status().code(), StatusCode::kNotFound);
}

TEST(OpTable, KnowsHowEveryOperationEnded) {
  OpTable ops;
  const OpId good = ops.Start();
  const OpId bad = ops.Start();
  EXPECT_EQ(ops.state(good), OpState::kPending);
  ops.End(good, OkStatus());
  ops.End(bad, Unavailable("gone"));
  EXPECT_EQ(ops.state(good), OpState::kDone);
  EXPECT_EQ(ops.state(bad), OpState::kFailed);
  EXPECT_EQ(ops.error(bad).message(), "gone");
  EXPECT_TRUE(ops.error(good).ok());
  EXPECT_EQ(ops.state(bad + 1), OpState::kFailed);  // never started
  EXPECT_FALSE(ops.error(bad + 1).ok());
}

TEST(OpTableDeathTest, EndsAnOperationOnlyOnce) {
  OpTable ops;
  const OpId op = ops.Start();
  ops.End(op, OkStatus());
  EXPECT_DEATH(ops.End(op, OkStatus()), "exactly once");
}

}  // namespace
}  // namespace refit::transport
