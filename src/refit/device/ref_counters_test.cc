// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/ref_counters.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace refit::device {
namespace {

// What an engine rank does when the last tensor of a load dies, as torch does it: maps the file, subtracts 1 without
// atomics.
void LetGo(const std::string& name, std::size_t index) {
  auto opened = SharedMemory::Open(name, 64 + 10'000 * 8);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  std::byte* const at = (*opened)->bytes().data() + 64 + 8 * index;
  std::int64_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  --value;
  std::memcpy(at, &value, sizeof(value));
}

TEST(RefCounters, AreTorchsFile) {
  const auto counters = RefCounters::Create(OwnedName("counters"));
  ASSERT_TRUE(counters.ok()) << counters.status().ToString();
  auto file = SharedMemory::Open((*counters)->name(), 80'064);  // torch stretches, and so breaks, a smaller one
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  std::int32_t header = 0;
  std::memcpy(&header, (*file)->bytes().data(), sizeof(header));
  EXPECT_EQ(header, 1);
  (*counters)->Arm((*counters)->Take());
  const std::size_t second = (*counters)->Take();
  (*counters)->Arm(second);
  std::int64_t value = 0;
  std::memcpy(&value, (*file)->bytes().data() + 64 + 8 * second, sizeof(value));
  EXPECT_EQ(value, 1);
}

// RX-XFER-12: the counter is the exact signal, per rank.
TEST(RefCounters, SayWhichRankHasLetGo) {
  const auto counters = RefCounters::Create(OwnedName("counters"));
  ASSERT_TRUE(counters.ok());
  const std::size_t rank0 = (*counters)->Take();
  const std::size_t rank1 = (*counters)->Take();
  for (int load = 0; load < 3; ++load) {
    (*counters)->Arm(rank0);
    (*counters)->Arm(rank1);
    EXPECT_FALSE((*counters)->released(rank0));
    LetGo((*counters)->name(), rank1);
    EXPECT_FALSE((*counters)->released(rank0));
    EXPECT_TRUE((*counters)->released(rank1));
    LetGo((*counters)->name(), rank0);
    EXPECT_TRUE((*counters)->released(rank0));
  }
}

TEST(RefCounters, AreNeverShared) {
  const auto counters = RefCounters::Create(OwnedName("counters"));
  ASSERT_TRUE(counters.ok());
  std::set<std::size_t> taken;
  for (std::size_t i = 0; i < RefCounters::kCapacity; ++i) {
    EXPECT_TRUE(taken.insert((*counters)->Take()).second);
  }
  EXPECT_EQ(*taken.rbegin(), RefCounters::kCapacity - 1);
}

TEST(RefCountersDeathTest, AreNotArmedWhileARankStillReads) {
  const auto counters = RefCounters::Create(OwnedName("counters"));
  ASSERT_TRUE(counters.ok());
  const std::size_t index = (*counters)->Take();
  (*counters)->Arm(index);
  EXPECT_DEATH((*counters)->Arm(index), "let go");
}

TEST(RefCounters, OfOneIncarnationAreNotAnothers) {
  const auto first = RefCounters::Create(OwnedName("first"));
  const auto second = RefCounters::Create(OwnedName("second"));
  ASSERT_TRUE(first.ok() && second.ok());
  const std::size_t dead = (*first)->Take();
  (*first)->Arm(dead);  // and its engine dies
  const std::size_t next = (*second)->Take();
  EXPECT_EQ((*second)->value(next), 0);
  EXPECT_FALSE((*first)->released(dead));
  EXPECT_EQ(RefCounters::Create((*first)->name()).status().code(), StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace refit::device
