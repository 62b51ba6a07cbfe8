// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Goldens from a second implementation, which was equal to a real server's on a GPU (settled D8): 1, 5, 32,772 and
// 10,000,003 bytes are the server's own.

#include "refit/device/gpu_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "refit/device/hash.h"

namespace refit::device {
namespace {

std::vector<std::byte> Pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((37 * i + 11) % 251);
  }
  return bytes;
}

struct Golden {
  std::size_t size;
  const char* hash;
};
constexpr Golden kGoldens[] = {
    {0, "0000000000000000"},       {1, "1ad0c089aca86aa8"},      {3, "102dcd5fb814f24b"},
    {4, "7cc712740b472041"},       {5, "51f57fd648f2a8af"},      {256, "ecc2ae3090383d8d"},
    {32767, "de8e5f41d5ecc525"},   {32768, "ad816c2d0e111745"},  {32769, "0159bcdfa38d97cd"},
    {32772, "1d2f06eaaa243793"},   {196610, "ab0e9284bda0a85f"}, {1000003, "9fda312147aed7d1"},
    {10000003, "52eb19f033c4ac2a"}};

TEST(GpuHash, AgreesWithTheServers) {
  for (const Golden& golden : kGoldens) {
    const std::vector<std::byte> bytes = Pattern(golden.size);
    EXPECT_EQ(GpuHashText(FinishGpuHash(GpuHashSum(bytes, 0, golden.size), golden.size)), golden.hash) << golden.size;
  }
}

TEST(GpuHash, OfPartsAddsUpAtEveryTileBoundary) {
  const std::vector<std::byte> bytes = Pattern(5 * kGpuHashTile + 1234);
  const std::uint64_t whole = GpuHashSum(bytes, 0, bytes.size());
  for (ByteCount cut = 0; cut < bytes.size(); cut += kGpuHashTile) {
    const Bytes head = Bytes(bytes).first(cut);
    const Bytes tail = Bytes(bytes).subspan(cut);
    EXPECT_EQ(GpuHashSum(tail, cut, bytes.size()) + GpuHashSum(head, 0, bytes.size()), whole) << cut;
  }
}

TEST(GpuHash, TellsWhereBytesLieAndHowManyThereAre) {
  const std::vector<std::byte> bytes(2 * kGpuHashTile);
  EXPECT_NE(GpuHashSum(bytes, 0, bytes.size()), GpuHashSum(bytes, kGpuHashTile, bytes.size() + kGpuHashTile));
  EXPECT_NE(GpuHashSum(bytes, 0, bytes.size()), GpuHashSum(bytes, 0, bytes.size() + 4));
  // Padding to words is the server's: zero bytes up to the next multiple of 4 are not told apart.
  EXPECT_EQ(GpuHashSum(Bytes(bytes).first(5), 0, 5), GpuHashSum(Bytes(bytes).first(8), 0, 8));
}

TEST(GpuParameterHasher, DoesNotDependOnHowTheBytesAreCut) {
  const std::unique_ptr<ParameterHasher> hasher = MakeParameterHasher(ParameterHashKind::kGpu);
  for (const std::size_t step : {1U, 7U, 4096U, 32767U, 32768U, 32769U, 100000U, 1000003U}) {
    for (const Golden& golden : kGoldens) {
      if (golden.size > 1000003) {
        continue;
      }
      const std::vector<std::byte> bytes = Pattern(golden.size);
      hasher->Reset(golden.size);
      for (std::size_t at = 0; at < bytes.size(); at += step) {
        hasher->Update(Bytes(bytes).subspan(at, std::min(step, bytes.size() - at)));
      }
      EXPECT_EQ(hasher->Finish(), golden.hash) << golden.size << " bytes by " << step;
    }
  }
}

TEST(GpuParameterHasherDeathTest, NeedsTheSizeThatWasAnnounced) {
  const std::unique_ptr<ParameterHasher> hasher = MakeParameterHasher(ParameterHashKind::kGpu);
  hasher->Reset(10);
  hasher->Update(Pattern(9));
  EXPECT_DEATH(hasher->Finish(), "enters the hash");
}

}  // namespace
}  // namespace refit::device
