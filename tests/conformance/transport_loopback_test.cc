// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <list>

#include "refit/transport/loopback/loopback_transport.h"
#include "tests/conformance/transport_suite.h"

namespace refit::transport {
namespace {

class LoopbackBackend {
 public:
  Transport& exporter() { return exporter_; }
  Transport& reader() { return reader_; }
  MutableBytes Allocate(ByteCount size) { return memory_.emplace_back(size); }
  std::string NobodyAddress() { return "loopback:77"; }

 private:
  LoopbackHub hub_;
  std::list<std::vector<std::byte>> memory_;
  LoopbackTransport exporter_{hub_};
  LoopbackTransport reader_{hub_};
};

INSTANTIATE_TYPED_TEST_SUITE_P(Loopback, TransportSuite, LoopbackBackend);

// What makes it a double that catches early readers: nothing is written before the operation ends.
TEST(Loopback, WritesNothingWhileAnOperationIsPending) {
  LoopbackHub hub;
  LoopbackTransport exporter(hub);
  LoopbackTransport reader(hub);
  std::vector<std::byte> memory(100, std::byte{1});
  std::vector<std::byte> into(100, kUntouched);
  const auto descriptor = exporter.Export(MutableBytes(memory));
  const auto link = reader.Bind(exporter.Address(), exec::Now());
  const auto op = (*link)->Fetch(*descriptor, {0, 100}, MutableBytes(into));
  EXPECT_EQ((*link)->Poll(*op), OpState::kPending);
  EXPECT_TRUE(IsUntouched(into));
  EXPECT_EQ((*link)->Poll(*op), OpState::kDone);
  EXPECT_EQ(into, memory);
}

TEST(Loopback, FailsOperationsOfAPeerThatWentAway) {
  LoopbackHub hub;
  auto exporter = std::make_unique<LoopbackTransport>(hub);
  LoopbackTransport reader(hub);
  std::vector<std::byte> memory(100, std::byte{1});
  std::vector<std::byte> into(100, kUntouched);
  const auto descriptor = exporter->Export(MutableBytes(memory));
  const auto link = reader.Bind(exporter->Address(), exec::Now());
  const auto op = (*link)->Fetch(*descriptor, {0, 100}, MutableBytes(into));
  exporter.reset();
  EXPECT_EQ(End(**link, *op), OpState::kFailed);
  EXPECT_EQ((*link)->error(*op).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(IsUntouched(into));
}

TEST(Loopback, WaitsForAPeerThatComesLater) {
  LoopbackHub hub;
  LoopbackTransport reader(hub);
  std::unique_ptr<LoopbackTransport> late;
  std::thread starter([&] { late = std::make_unique<LoopbackTransport>(hub); });
  EXPECT_TRUE(reader.Bind("loopback:2", In(std::chrono::seconds(10))).ok());
  starter.join();
}

}  // namespace
}  // namespace refit::transport
