// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/payload_pickle.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <string>

namespace refit::engine::sglang {
namespace {

using weights::DType;

std::string Sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return ToHex(AsBytes(digest));
}

std::string CountingBytes() {
  std::string handle;
  for (int i = 0; i < 64; ++i) {
    handle += static_cast<char>(i);
  }
  return handle;
}

CudaLoad GoldenLoad() {
  return {.device_uuid = "00112233-4455-6677-8899-aabbccddeeff",
          .ipc_handle = CountingBytes(),
          .load_size = 512,
          .storage_size = 512,
          .storage_offset = 0,
          .counter_name = "/refit_rc_1",
          .counter_index = 0};
}

// The worked example of docs/spec/sglang-wire.md §2.12.
constexpr std::string_view kGoldenA =
    "80047d288c10666c617474656e65645f74656e736f728c20746f7263682e6d756c746970726f63657373696e672e72656475"
    "6374696f6e738c1372656275696c645f637564615f74656e736f7293288c05746f7263688c0654656e736f72938c05746f72"
    "63688c0453697a65934d00028585524b01854b008c0d746f7263682e73746f726167658c0c547970656453746f7261676593"
    "8c05746f7263688c0575696e7438938c2430303131323233332d343435352d363637372d383839392d616162626363646465"
    "6566664340000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c"
    "2d2e2f303132333435363738393a3b3c3d3e3f4d00024b0089430b2f72656669745f72635f314b0043008974528c086d6574"
    "61646174615d288c2473676c616e672e7372742e7765696768745f73796e632e74656e736f725f6275636b65748c17466c61"
    "7474656e656454656e736f724d657461646174619329817d288c046e616d658c01778c0573686170658c05746f7263688c04"
    "53697a65934b024b038685528c0564747970658c05746f7263688c0862666c6f61743136938c0973746172745f6964784b00"
    "8c07656e645f6964784b0c8c056e756d656c4b0c756265752e";

TEST(PayloadPickle, GoldenAIsEmittedByteForByte) {
  const std::vector<PayloadTensor> tensors = {{{"w", DType::kBfloat16, {2, 3}}, 0}};
  const std::string pickle = PicklePayload({GoldenLoad(), tensors});
  EXPECT_EQ(pickle.size(), 475U);
  EXPECT_EQ(ToHex(AsBytes(pickle)), kGoldenA);
  EXPECT_EQ(Sha256(pickle), "cd16b7442b243275a1428a4fb5b16a3747fad2b5e2c3c273367e6391bfd81e0b");
}

TEST(PayloadPickle, GoldenBWithLargeNumbersScalarsAndFourDimensionsHasItsDigest) {
  CudaLoad load = GoldenLoad();
  load.storage_size = 6442450944;
  load.storage_offset = 2097152;
  load.counter_index = 7;
  load.load_size = 6442450944;
  const std::vector<PayloadTensor> tensors = {
      {{"model.embed_tokens.weight", DType::kBfloat16, {151936, 4096}}, 0},
      {{"s", DType::kFloat32, {}}, 1244659712},
      {{"b", DType::kFloat16, {1, 2, 3, 4}}, 1244659968},
  };
  const std::string pickle = PicklePayload({load, tensors});
  EXPECT_EQ(pickle.size(), 867U);
  EXPECT_EQ(Sha256(pickle), "94d2b853fd3af0ca148a1f93113ada4c6f4f1aa9bcd98ec8fb2fb6e0a2e7d931");
}

// RC-PAY-04: the payload names the load object; nothing of the data is in it.
TEST(PayloadPickle, AHostPayloadNamesItsObjectAndCoversTheWholeLoad) {
  const RankPayload payload = {.load = HostLoad{.shm_name = "/refit-1-2-slot-0", .data_size = 70000},
                               .tensors = {{{"w", DType::kBfloat16, {2, 3}}, 0}}};
  const std::string pickle = PicklePayload(payload);
  const std::string storage = std::string("C\0C\x11/refit-1-2-slot-0J", 22) + std::string("\x70\x11\x01\0t", 5);
  EXPECT_NE(pickle.find(storage), std::string::npos);
  EXPECT_EQ(pickle.substr(0, 2), "\x80\x04");
  EXPECT_EQ(pickle.back(), '.');
}

TEST(PayloadPickle, AnEmptyLoadIsStillAWholePickle) {
  const std::string pickle = PicklePayload({.load = HostLoad{.shm_name = "/x", .data_size = 0}, .tensors = {}});
  EXPECT_TRUE(pickle.ends_with("metadata](eu."));
}

TEST(PayloadPickle, NamesBeyond255BytesUseTheLongForm) {
  const std::string name(300, 'n');
  const std::string pickle = PicklePayload(
      {.load = HostLoad{.shm_name = "/x", .data_size = 4}, .tensors = {{{name, DType::kFloat32, {1}}, 0}}});
  EXPECT_NE(pickle.find(std::string("X\x2c\x01\0\0", 5) + name), std::string::npos);
}

TEST(Base64, PadsAndKnowsTheStandardAlphabet) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Base64("\xff\xfe\xfb"), "//77");
}

}  // namespace
}  // namespace refit::engine::sglang
