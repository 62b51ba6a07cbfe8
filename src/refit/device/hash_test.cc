// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Goldens from the reference implementations (python xxhash 0.8.4, hashlib), so that both ends of any version agree.

#include "refit/device/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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
  std::string hex;
};

// RX-SUM (D7): XXH3-128, canonical form, high word first.
TEST(DigestHasher, AgreesWithTheReferenceImplementation) {
  const Golden goldens[] = {
      {0, "99aa06d3014798d86001c324468d497f"},     {1, "885f487031a569684a4139caf4136257"},
      {3, "d2f76a3b5388f28b505118c313121c0e"},     {4, "b89f1314ee265fbdad17cf6483bb4f31"},
      {8, "095d2c69ad3b45583565941981dcf416"},     {9, "60081386dbfce3438122c310c9f1d269"},
      {16, "61672a487bfb237243285bb62c9160fd"},    {17, "92bfb697952c1633db28d7da2164a151"},
      {128, "fb41bc4060600ea11df74e5aacc6f7b9"},   {129, "a4d099ebe483932fb427f7760f3caf88"},
      {240, "92c64f5f2f8aa22cac4a9078e25e0cd9"},   {241, "ed4e3168dd9beef0c146bffda99b8355"},
      {1024, "24da427b98ce84ea5205bfd2382ce8da"},  {65536, "b25094be69719b3d1c63de8bba540d51"},
      {65537, "bd29e43485997561134efbafac135850"}, {1000003, "a3c50355739b7d15b0eed89fffaf3cc3"},
  };
  const std::unique_ptr<DigestHasher> hasher = MakeDigestHasher();
  for (const Golden& golden : goldens) {
    hasher->Reset();
    hasher->Update(Pattern(golden.size));
    EXPECT_EQ(ToHex(hasher->Finish()), golden.hex) << golden.size << " bytes";
  }
}

TEST(DigestHasher, DoesNotDependOnHowTheBytesAreCut) {
  const std::vector<std::byte> bytes = Pattern(1000003);
  const std::unique_ptr<DigestHasher> hasher = MakeDigestHasher();
  hasher->Reset();
  std::size_t at = 0;
  for (std::size_t size = 1; at < bytes.size(); size = size * 3 % 99991 + 1) {
    const Bytes part = Bytes(bytes).subspan(at, std::min(size, bytes.size() - at));
    hasher->Update(part);
    at += part.size();
  }
  EXPECT_EQ(ToHex(hasher->Finish()), "a3c50355739b7d15b0eed89fffaf3cc3");
}

TEST(ParameterHasher, IsTheFirstEightBytesOfSha256) {
  const Golden goldens[] = {{0, "e3b0c44298fc1c14"},
                            {1, "e7cf46a078fed4fa"},
                            {5, "b0876eace1394020"},
                            {32772, "785db1da078bc956"},
                            {1000003, "0652f48c7e1a6970"}};
  const std::unique_ptr<ParameterHasher> hasher = MakeParameterHasher(ParameterHashKind::kSha256Prefix);
  for (const Golden& golden : goldens) {
    hasher->Reset(golden.size);
    const std::vector<std::byte> bytes = Pattern(golden.size);
    const std::size_t half = bytes.size() / 2;
    hasher->Update(Bytes(bytes).first(half));
    hasher->Update(Bytes(bytes).subspan(half));
    EXPECT_EQ(hasher->Finish(), golden.hex) << golden.size << " bytes";
  }
}

TEST(Sha256Hex, AgreesWithTheReferenceImplementation) {
  EXPECT_EQ(Sha256Hex(Pattern(5)), "b0876eace1394020b22cb0718294dd328ac1dc6bae00af2f064289022c86281a");
}

}  // namespace
}  // namespace refit::device
