// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/host/memory_ceiling.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace refit::device {
namespace {

std::vector<std::byte> Pattern(std::size_t size, std::size_t seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((37 * i + 11 * seed) % 251);
  }
  return bytes;
}

// A ceiling that skipped bytes would be too good to be true.
TEST(MemoryCeiling, MovesEveryByteOfEveryLoad) {
  const auto a = Pattern(100'000, 1);
  const auto b = Pattern(50'000, 2);
  std::vector<stream::CopyPlan> loads;
  std::vector<std::byte> expected;
  for (ByteCount i = 0; i < 40; ++i) {
    loads.push_back({{0, i * 1000, 0, 1000, 0}, {1, i * 500, 1000, 500, 3}});
    expected.insert(expected.end(), a.begin() + static_cast<std::ptrdiff_t>(i * 1000),
                    a.begin() + static_cast<std::ptrdiff_t>(i * 1000 + 1000));
    expected.insert(expected.end(), b.begin() + static_cast<std::ptrdiff_t>(i * 500),
                    b.begin() + static_cast<std::ptrdiff_t>(i * 500 + 500));
  }
  loads.push_back({});  // the empty last load of an empty rest
  const auto ceiling = MemoryCeiling::Create({a, b}, loads);
  ASSERT_TRUE(ceiling.ok()) << ceiling.status().ToString();
  for (int round = 0; round < 3; ++round) {
    const Result<Duration> seconds = (*ceiling)->Measure();
    ASSERT_TRUE(seconds.ok());
    EXPECT_GT(*seconds, Duration(0));
  }
  EXPECT_TRUE(
      std::equal(expected.begin(), expected.end(), (*ceiling)->destination().begin(), (*ceiling)->destination().end()));
}

TEST(MemoryCeiling, EndsWhenACopyFails) {
  const auto a = Pattern(100, 1);
  const auto ceiling = MemoryCeiling::Create({a}, {{{0, 0, 0, 100, 0}}, {{0, 1, 0, 100, 0}}});
  ASSERT_TRUE(ceiling.ok());
  EXPECT_FALSE((*ceiling)->Measure().ok());
}

}  // namespace
}  // namespace refit::device
