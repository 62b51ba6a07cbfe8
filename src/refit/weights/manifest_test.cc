// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/fake_hasher.h"

namespace refit::weights {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TensorSpec Spec(std::string name, Shape shape, DType dtype = DType::kBfloat16) {
  return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
}

Manifest ManifestOf(std::vector<TensorSpec> tensors) { return Manifest::Make(std::move(tensors)).value(); }

TEST(DTypeTest, NamesGoBothWays) {
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromTorchName(TorchName(dtype)), dtype);
    EXPECT_EQ(DTypeFromSafetensorsName(SafetensorsName(dtype)), dtype);
  }
  EXPECT_EQ(TorchName(DType::kFloat8E4m3), "float8_e4m3fn");
  EXPECT_EQ(SafetensorsName(DType::kBfloat16), "BF16");
  EXPECT_EQ(ItemSize(DType::kBfloat16), 2u);
  EXPECT_EQ(ItemSize(DType::kFloat8E5m2), 1u);
  EXPECT_FALSE(DTypeFromTorchName("BF16").has_value());
  EXPECT_FALSE(DTypeFromSafetensorsName("").has_value());
}

TEST(TensorSpecTest, IsShownAsNameDTypeAndShape) {
  EXPECT_EQ(ToString(Spec("model.norm.weight", {576})), "model.norm.weight bfloat16[576]");
  EXPECT_EQ(ToString(Shape{576, 192}), "[576, 192]");
  EXPECT_EQ(ToString(Shape{}), "[]");
}

TEST(TensorSpecTest, SizeIsTheProductOfDimensionsAndElementSize) {
  EXPECT_EQ(SizeOf(Spec("a", {3, 5}, DType::kFloat32)).value(), 60u);
  EXPECT_EQ(SizeOf(Spec("scalar", {}, DType::kFloat64)).value(), 8u);
  EXPECT_EQ(SizeOf(Spec("none", {0, 4096})).value(), 0u);
  EXPECT_EQ(SizeOf(Spec("huge", {kMax}, DType::kUint8)).value(), ByteCount{kMax});
}

TEST(TensorSpecTest, SizeRefusesWhatIsHostile) {  // RC-BKT-14
  EXPECT_FALSE(SizeOf(Spec("", {1})).ok());
  EXPECT_FALSE(SizeOf(Spec(std::string(kMaxNameLength + 1, 'n'), {1})).ok());
  EXPECT_FALSE(SizeOf(Spec("a", Shape(kMaxRank + 1, 1))).ok());
  EXPECT_FALSE(SizeOf(Spec("a", {-1})).ok());
  EXPECT_FALSE(SizeOf(Spec("a", {0, -1})).ok());
  EXPECT_FALSE(SizeOf(Spec("a", {kMax})).ok());  // × 2 bytes
  EXPECT_FALSE(SizeOf(Spec("a", {std::int64_t{1} << 62, 4}, DType::kUint8)).ok());
  EXPECT_FALSE(SizeOf(Spec("a", {0, kMax, kMax})).ok());
}

TEST(ManifestTest, KnowsSizesAndPlaces) {
  const Manifest manifest = ManifestOf({Spec("b", {3}), Spec("a", {2, 2}, DType::kFloat32), Spec("none", {0})});
  EXPECT_EQ(manifest.tensor_count(), 3u);
  EXPECT_EQ(manifest.size(1), 16u);
  EXPECT_EQ(manifest.total_size(), 22u);
  EXPECT_EQ(manifest.Find("a"), 1u);
  EXPECT_FALSE(manifest.Find("c").has_value());
  EXPECT_EQ(manifest.tensors()[0].name, "b");  // the order given, not of names
}

TEST(ManifestTest, RefusesNothingRepeatsAndImpossibleTensors) {  // RC-VER-04, RC-BKT-12
  EXPECT_FALSE(Manifest::Make({}).ok());
  const Status repeat = Manifest::Make({Spec("a", {1}), Spec("b", {1}), Spec("a", {2})}).status();
  EXPECT_EQ(repeat.message(), "tensor a occurs twice");
  EXPECT_FALSE(Manifest::Make({Spec("a", {-1})}).ok());
  const Shape most = {kMax};
  EXPECT_FALSE(
      Manifest::Make({Spec("a", most, DType::kUint8), Spec("b", most, DType::kUint8), Spec("c", most, DType::kUint8)})
          .ok());
}

TEST(ManifestTest, DigestIsOverTheDocumentedBytes) {  // RX-ID-05
  test::RecordingHasher hasher;
  ManifestOf({Spec("ab", {3, 5})}).ManifestDigest(hasher);
  std::string expected("\2\0\0\0\0\0\0\0ab\x8\0\0\0\0\0\0\0bfloat16", 26);
  expected += std::string("\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 24);
  EXPECT_EQ(hasher.bytes(), expected);
}

TEST(ManifestTest, DigestChangesWithOrderNamesDTypesAndShapes) {
  test::FakeHasher hasher;
  const Digest digest = ManifestOf({Spec("a", {2}), Spec("b", {2})}).ManifestDigest(hasher);
  EXPECT_EQ(ManifestOf({Spec("a", {2}), Spec("b", {2})}).ManifestDigest(hasher), digest);
  EXPECT_NE(ManifestOf({Spec("b", {2}), Spec("a", {2})}).ManifestDigest(hasher), digest);
  EXPECT_NE(ManifestOf({Spec("a", {2}), Spec("c", {2})}).ManifestDigest(hasher), digest);
  EXPECT_NE(ManifestOf({Spec("a", {2}), Spec("b", {2}, DType::kFloat16)}).ManifestDigest(hasher), digest);
  EXPECT_NE(ManifestOf({Spec("a", {2}), Spec("b", {2, 1})}).ManifestDigest(hasher), digest);
}

TEST(CheckSameTensorsTest, OrderDoesNotMatter) {
  const Manifest one = ManifestOf({Spec("a", {2}), Spec("b", {3})});
  EXPECT_TRUE(CheckSameTensors(one, ManifestOf({Spec("b", {3}), Spec("a", {2})}), "policy rank 1").ok());
}

TEST(CheckSameTensorsTest, NamesTheFirstDifferenceAndCountsTheRest) {
  const Manifest expected = ManifestOf({Spec("a", {2}), Spec("b", {3}), Spec("c", {4})});
  const auto message = [&expected](std::vector<TensorSpec> actual) {
    return CheckSameTensors(expected, ManifestOf(std::move(actual)), "policy rank 1").message();
  };
  EXPECT_EQ(message({Spec("a", {2}), Spec("c", {4})}), "policy rank 1 lacks b bfloat16[3]");
  EXPECT_EQ(message({Spec("a", {2}), Spec("b", {3}), Spec("c", {4}), Spec("d", {5})}),
            "policy rank 1 has d bfloat16[5], which is not expected");
  EXPECT_EQ(message({Spec("a", {2}), Spec("b", {3, 1}), Spec("c", {4}, DType::kFloat32)}),
            "policy rank 1 has b bfloat16[3, 1], not bfloat16[3] and 1 more differ");
}

// D7, RX-SUM-01
class RootDigestTest : public testing::Test {
 protected:
  static std::vector<Digest> Digests() {
    std::vector<Digest> digests(3);
    for (std::size_t i = 0; i < digests.size(); ++i) {
      digests[i].high = 0x0102030405060708;
      digests[i].low = i;
    }
    return digests;
  }
  test::RecordingHasher hasher_;
};

TEST_F(RootDigestTest, IsOverTheDocumentedBytesInOrderOfNames) {
  const Manifest manifest = ManifestOf({Spec("b", {}), Spec("a", {}), Spec("B", {})});
  RootDigest(manifest, Digests(), hasher_);
  std::string expected;
  const std::vector<std::pair<char, char>> order = {{'B', '\2'}, {'a', '\1'}, {'b', '\0'}};
  for (const auto& [name, low] : order) {
    expected += std::string("\1\0\0\0\0\0\0\0", 8) + name + std::string("\x8\0\0\0\0\0\0\0bfloat16", 16);
    expected += std::string("\0\0\0\0\0\0\0\0", 8) + std::string("\1\2\3\4\5\6\7\x8\0\0\0\0\0\0\0", 15) + low;
  }
  EXPECT_EQ(hasher_.bytes(), expected);
}

TEST_F(RootDigestTest, DoesNotDependOnTheOrderOfTheStream) {
  std::vector<Digest> digests = Digests();
  const Digest root = RootDigest(ManifestOf({Spec("a", {1}), Spec("b", {2}), Spec("c", {3})}), digests, hasher_);
  std::reverse(digests.begin(), digests.end());
  EXPECT_EQ(RootDigest(ManifestOf({Spec("c", {3}), Spec("b", {2}), Spec("a", {1})}), digests, hasher_), root);
}

TEST_F(RootDigestTest, SeesSwappedContents) {  // S57
  std::vector<Digest> digests = Digests();
  const Manifest manifest = ManifestOf({Spec("a", {2}), Spec("b", {2}), Spec("c", {2})});
  const Digest root = RootDigest(manifest, digests, hasher_);
  std::swap(digests[0], digests[1]);
  EXPECT_NE(RootDigest(manifest, digests, hasher_), root);
}

}  // namespace
}  // namespace refit::weights
