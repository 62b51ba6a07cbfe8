// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/faults.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "refit/base/str.h"

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

class FaultFileTest : public testing::Test {
 protected:
  FaultFileTest() { std::filesystem::create_directory(folder_); }
  ~FaultFileTest() override { std::filesystem::remove_all(folder_); }
  void Arm(const std::string& text) const { std::ofstream(file_) << text; }
  std::string hits() const {
    std::ifstream file(file_ + ".hits");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string folder_ = StrCat(testing::TempDir(), "refit-faults-", getpid());
  const std::string file_ = folder_ + "/faults";
};

TEST_F(FaultFileTest, SwitchesComeAndGoWithItsLinesAndEachOneThatHappenedIsTold) {
  FaultTable table({}, file_);
  EXPECT_FALSE(table.CountCall(FaultRoute::kUpdate).has_value()) << "there is no file yet";
  Arm("hold:update:2\n\nexit:end\n");
  EXPECT_FALSE(table.CountCall(FaultRoute::kUpdate).has_value()) << "counted from the change on";
  const auto held = table.CountCall(FaultRoute::kUpdate);
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(*held, (Fault{FaultAction::kHold, FaultRoute::kUpdate, 2, 30}));
  EXPECT_TRUE(table.Stands(*held));
  EXPECT_EQ(hits(), StrCat(getpid(), " hold update 2\n"));
  Arm("exit:end\n");
  EXPECT_FALSE(table.Stands(*held));
  EXPECT_EQ(table.CountCall(FaultRoute::kEnd)->action, FaultAction::kExit);
  EXPECT_EQ(hits(), StrCat(getpid(), " hold update 2\n", getpid(), " exit end 1\n"));
  Arm("nonsense\nrefuse:flush:*\n");
  EXPECT_EQ(table.CountCall(FaultRoute::kFlush)->action, FaultAction::kRefuse) << "a wrong line hides no other";
  std::filesystem::remove(file_);
  EXPECT_FALSE(table.CountCall(FaultRoute::kFlush).has_value());
}

}  // namespace
}  // namespace refit::engine::reference
