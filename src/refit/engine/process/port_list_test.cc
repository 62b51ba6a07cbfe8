// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/process/port_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>
#include <vector>

#include "tests/support/temp_folder.h"

namespace refit::engine::process {
namespace {

// RC-REC-09, settled C9: whoever asks, and from however many places at once: agents of one host share the list.
TEST(PortList, APortIsNeverGivenTwice) {
  const test::TempFolder folder;
  const std::string list = folder / "ports";
  std::set<std::uint16_t> ports;
  std::vector<std::future<std::vector<std::uint16_t>>> takers;
  for (int taker = 0; taker < 4; ++taker) {
    takers.push_back(std::async(std::launch::async, [&list] {
      std::vector<std::uint16_t> taken;
      for (int i = 0; i < 20; ++i) {
        const auto port = TakePort(list);
        EXPECT_TRUE(port.has_value()) << port.status().ToString();
        taken.push_back(port.has_value() ? *port : std::uint16_t{0});
      }
      return taken;
    }));
  }
  for (auto& taker : takers) {
    for (const std::uint16_t port : taker.get()) {
      EXPECT_TRUE(ports.insert(port).second) << port;
    }
  }
}

TEST(PortList, AListThatCannotBeWrittenIsNamed) {
  const auto port = TakePort("/no/such/folder/ports");
  ASSERT_FALSE(port.has_value());
  EXPECT_THAT(port.status().message(), testing::HasSubstr("/no/such/folder/ports: No such file"));
}

TEST(PortList, EveryRunHasAListOfItsOwn) { EXPECT_NE(PortListPath(RunId{{1, 2}}), PortListPath(RunId{{1, 3}})); }

}  // namespace
}  // namespace refit::engine::process
