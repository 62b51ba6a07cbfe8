// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/faults.h"

#include <gtest/gtest.h>

namespace refit::engine::reference {
namespace {

TEST(ParseFaultTest, ReadsActionRouteCallAndParameter) {
  const auto hang = ParseFault("hang:update:3");
  ASSERT_TRUE(hang.has_value());
  EXPECT_EQ(*hang, (Fault{FaultAction::kHang, FaultRoute::kUpdate, 3, 0}));
  EXPECT_EQ(*ParseFault("die:begin"), (Fault{FaultAction::kDie, FaultRoute::kBegin, 1, 0}));
  EXPECT_EQ(*ParseFault("slow:health:*:2.5"), (Fault{FaultAction::kSlow, FaultRoute::kHealth, 0, 2.5}));
  EXPECT_EQ(*ParseFault("echo:flush"), (Fault{FaultAction::kEcho, FaultRoute::kFlush, 1, 4}));
}

TEST(ParseFaultTest, RefusesWithAListOfWhatThereIs) {
  for (const char* spec :
       {"", "hang", "hang:", "hang:nowhere", "explode:update", "hang:update:0", "hang:update:x", "hang:update:1:2",
        "slow:update:1:x", "slow:update:1:-1", "slow:update:1:nan", "slow:update:1:1:1", "hang:update:"}) {
    EXPECT_FALSE(ParseFault(spec).has_value()) << spec;
  }
  EXPECT_NE(ParseFault("explode:update").status().remedy().find("broken-json"), std::string::npos);
  EXPECT_NE(ParseFault("hang:nowhere").status().remedy().find("resume_memory"), std::string::npos);
}

TEST(FaultTableTest, OnlyTheNamedCallOfTheNamedRouteMisbehaves) {
  FaultTable table({*ParseFault("hang:update:2"), *ParseFault("refuse:flush:*")});
  EXPECT_FALSE(table.CountCall(FaultRoute::kUpdate).has_value());
  EXPECT_FALSE(table.CountCall(FaultRoute::kBegin).has_value());
  EXPECT_EQ(table.CountCall(FaultRoute::kUpdate)->action, FaultAction::kHang);
  EXPECT_FALSE(table.CountCall(FaultRoute::kUpdate).has_value());
  EXPECT_EQ(table.CountCall(FaultRoute::kFlush)->action, FaultAction::kRefuse);
  EXPECT_EQ(table.CountCall(FaultRoute::kFlush)->action, FaultAction::kRefuse);
  EXPECT_FALSE(table.CountCall(FaultRoute::kNone).has_value());
}

}  // namespace
}  // namespace refit::engine::reference
