// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/payload_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "refit/engine/sglang/payload_pickle.h"

namespace refit::engine::reference {
namespace {

using std::string_literals::operator""s;
using weights::DType;

constexpr auto kPolicy = GlobalPolicy::kExactNames;

RankPayload Example() {
  return {HostLoad{"/refit-1-2-a", 4096},
          {{{"model.norm.weight", DType::kBfloat16, {576}}, 0},
           {{"s", DType::kFloat32, {}}, 1152},
           {{"empty", DType::kInt64, {0, 3}}, 1160}}};
}

// RC-PAY-01: what our emitter writes is what the reader reads.
TEST(PayloadReaderTest, ReadsTheBucketThatWeEmit) {
  const auto load = ReadPayload(sglang::PicklePayload(Example()), LoadFormat::kFlattenedBucket, kPolicy);
  ASSERT_TRUE(load.has_value()) << load.status().message();
  ASSERT_EQ(load->storages.size(), 1U);
  EXPECT_EQ(load->storages[0].shm_name, "/refit-1-2-a");
  EXPECT_EQ(load->storages[0].data_size, 4096U);
  EXPECT_EQ(load->storages[0].uses, 1);
  ASSERT_EQ(load->tensors.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(load->tensors[i].spec, Example().tensors[i].spec);
    EXPECT_EQ(load->tensors[i].offset, Example().tensors[i].offset);
  }
  EXPECT_EQ(load->tensors[1].size, 4U);
}

// The goldens of docs/spec/sglang-wire.md §2.12 parse; what they say is GPU memory, which this engine has not.
TEST(PayloadReaderTest, CudaPayloadsAreRecognisedAndRefused) {
  CudaLoad load{"00112233-4455-6677-8899-aabbccddeeff", std::string(64, 'h'), 512, 512, 0, "/refit_rc_1", 0};
  const std::vector<PayloadTensor> golden_a = {{{"w", DType::kBfloat16, {2, 3}}, 0}};
  const std::string pickle_a = sglang::PicklePayload({load, golden_a});
  load = {load.device_uuid, load.ipc_handle, 6442450944, 6442450944, 2097152, "/refit_rc_1", 7};
  const std::vector<PayloadTensor> golden_b = {{{"model.embed_tokens.weight", DType::kBfloat16, {151936, 4096}}, 0},
                                               {{"s", DType::kFloat32, {}}, 1244659712},
                                               {{"b", DType::kFloat16, {1, 2, 3, 4}}, 1244659968}};
  const std::string pickle_b = sglang::PicklePayload({load, golden_b});
  ASSERT_EQ(pickle_a.size(), 475U);
  ASSERT_EQ(pickle_b.size(), 867U);
  for (const std::string& pickle : {pickle_a, pickle_b}) {
    EXPECT_TRUE(ReadPickle(pickle, GlobalPolicy::kModulePrefixes).has_value());
    const auto tree = ReadPickle(pickle, kPolicy);
    ASSERT_TRUE(tree.has_value()) << tree.status().message();
    const PickleValue* flat = tree->Find(tree->root(), "flattened_tensor");
    ASSERT_NE(flat, nullptr);
    EXPECT_EQ(tree->item(*flat, 1).count, 15U);
    const auto read = ReadPayload(pickle, LoadFormat::kFlattenedBucket, kPolicy);
    ASSERT_FALSE(read.has_value());
    EXPECT_NE(read.status().message().find("no GPU"), std::string::npos);
  }
}

TEST(PayloadReaderTest, ABucketForNullAndTheReverseAreTypeErrors) {
  const auto dict = ReadPayload(sglang::PicklePayload(Example()), LoadFormat::kNamedTensors, kPolicy);
  EXPECT_EQ(dict.status().message().substr(0, 11), "ValueError:");
  const auto list = ReadPayload("\x80\x04]."s, LoadFormat::kFlattenedBucket, kPolicy);
  EXPECT_EQ(list.status().message().substr(0, 10), "TypeError:");
  EXPECT_TRUE(ReadPayload("\x80\x04]."s, LoadFormat::kNamedTensors, kPolicy).has_value());
}

// RC-BKT-02: a start that is no multiple of the item size cannot be viewed.
TEST(PayloadReaderTest, AMisalignedTensorIsAnError) {
  RankPayload payload = Example();
  payload.tensors[0].offset = 1;
  const auto load = ReadPayload(sglang::PicklePayload(payload), LoadFormat::kFlattenedBucket, kPolicy);
  ASSERT_FALSE(load.has_value());
  EXPECT_NE(load.status().message().find("divisible"), std::string::npos);
}

TEST(PayloadReaderTest, ATensorThatLeavesTheBucketIsAnError) {
  RankPayload payload = Example();
  std::get<HostLoad>(payload.load).data_size = 1151;
  EXPECT_FALSE(ReadPayload(sglang::PicklePayload(payload), LoadFormat::kFlattenedBucket, kPolicy).has_value());
}

TEST(PayloadReaderTest, EveryCutOfAPayloadIsAnError) {
  const std::string pickle = sglang::PicklePayload(Example());
  for (std::size_t size = 0; size < pickle.size(); ++size) {
    EXPECT_FALSE(ReadPayload(pickle.substr(0, size), LoadFormat::kFlattenedBucket, kPolicy).has_value()) << size;
  }
}

TEST(DecodeBase64Test, DecodesWhatTheEmitterEncodes) {
  std::mt19937 random(7);
  for (std::size_t size = 0; size < 200; ++size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random());
    }
    EXPECT_EQ(DecodeBase64(sglang::Base64(bytes)), bytes);
  }
}

TEST(DecodeBase64Test, RefusesEverythingElse) {
  for (const std::string_view text :
       {"a", "abc", "abc!", "ab=c", "====", "a===", "ab\nc", "abcd=", "!!!not base64!!!"}) {
    EXPECT_FALSE(DecodeBase64(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace refit::engine::reference
