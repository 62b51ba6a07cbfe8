// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Engines are compared with hashes of their own kind (settled D8), and those are of the very bytes (RX-SUM-05).

#include "refit/runtime/verifier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "refit/checkpoint/random_checkpoint.h"
#include "refit/device/gpu_hash.h"
#include "refit/device/hash.h"
#include "refit/runtime/source.h"
#include "tests/support/temp_folder.h"

namespace refit::runtime {
namespace {

constexpr Duration kPatience = std::chrono::seconds(10);

std::vector<weights::RankHashes> OneRank(const std::string& hash) { return {{TpRank(0), {{"w", hash}}}}; }

// Hashes "w" to a word for each kind, and notes what it was asked.
class FakePolicy final : public rpc::PolicyClient {
 public:
  bool ConnectionLost() override { return false; }
  void Execute(const sync::PolicyCommand&, Duration, Done) override {}
  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string&, weights::Hashing hashing,
                                                          Duration) override {
    asked_.push_back(hashing);
    return OneRank(hashing.kind == ParameterHashKind::kGpu ? "gpu" : "sha");
  }
  std::vector<weights::Hashing> asked_;
};

class FakeAgent final : public rpc::AgentClient {
 public:
  explicit FakeAgent(std::string hash) : hash_(std::move(hash)) {}
  const std::string& address() const override { return hash_; }
  void Execute(const sync::AgentCommand&, Duration, Done) override {}
  void Run(const rpc::EngineErrand&, Duration, ErrandDone) override {}
  Result<std::vector<weights::RankHashes>> Checksums(Incarnation, Duration) override { return OneRank(hash_); }
  Result<ByteCount> BytesDelivered(Duration) override { return ByteCount{0}; }

 private:
  const std::string hash_;
};

VerifyTarget Target(std::uint32_t slot, ParameterHashKind kind, const std::string& hash) {
  VerifyTarget target{.slot = {}, .hash_kind = kind, .agent = std::make_shared<FakeAgent>(hash)};
  target.slot.slot = SlotIndex(slot);
  target.slot.incarnation = Incarnation{{1, slot + 1}};
  target.slot.tp_size = 1;
  target.slot.serving = true;
  return target;
}

TEST(VerifierTest, AnEngineIsComparedWithHashesOfItsOwnKind) {
  const auto policy = std::make_shared<FakePolicy>();
  Verifier verifier;
  const WeightVersion version(4);
  verifier.Remember(version, "/m");
  verifier.Learn(version, {{1, ParameterHashKind::kSha256Prefix}}, policy, kPatience);
  const auto report =
      verifier.Verify(version, "",
                      {Target(0, ParameterHashKind::kSha256Prefix, "sha"), Target(1, ParameterHashKind::kGpu, "gpu"),
                       Target(2, ParameterHashKind::kGpu, "other")},
                      policy, kPatience);
  ASSERT_EQ(report.engines.size(), 3U);
  EXPECT_TRUE(report.engines[0].differences.empty());
  EXPECT_TRUE(report.engines[1].differences.empty());
  EXPECT_EQ(report.engines[2].differences, (std::vector<weights::HashDifference>{{TpRank(0), "w", "gpu", "other"}}));
  EXPECT_FALSE(report.verified);
  EXPECT_EQ(policy->asked_, (std::vector<weights::Hashing>{{1, ParameterHashKind::kSha256Prefix},
                                                           {1, ParameterHashKind::kGpu}}));  // each once
}

std::string Joined(const Source& source, std::initializer_list<const char*> names) {
  std::string bytes;
  for (const char* name : names) {
    const Bytes tensor = source.tensors()[source.manifest()->Find(name).value()];
    bytes.append(reinterpret_cast<const char*>(tensor.data()), tensor.size());
  }
  return bytes;
}

// What a version must hash to is as large as the model has parameters: it does not pile up.
TEST(VerifierTest, OnlyTheNewestVersionsAreKnown) {
  const auto policy = std::make_shared<FakePolicy>();
  Verifier verifier;
  const weights::Hashing hashing{1, ParameterHashKind::kSha256Prefix};
  for (std::uint64_t version = 1; version <= 3; ++version) {
    verifier.Remember(WeightVersion(version), "/m");
    verifier.Learn(WeightVersion(version), {hashing}, policy, kPatience);
  }
  const auto verify = [&](std::uint64_t version) {
    policy->asked_.clear();
    return verifier.Verify(WeightVersion(version), "", {Target(0, ParameterHashKind::kSha256Prefix, "sha")}, policy,
                           kPatience);
  };
  EXPECT_TRUE(verify(3).verified);
  EXPECT_TRUE(policy->asked_.empty());
  EXPECT_TRUE(verify(2).verified);
  EXPECT_TRUE(policy->asked_.empty());
  static_cast<void>(verify(1));
  EXPECT_EQ(policy->asked_.size(), 1U) << "computed anew";
}

TEST(SourceTest, HashesEachParameterAsTheEngineKeepsItInEachKind) {
  const test::TempFolder folder;
  ASSERT_TRUE(checkpoint::WriteRandomCheckpoint(checkpoint::RandomShape("tiny").value(), 1, folder.path()).ok());
  const auto source = Source::Open(folder.path()).value();
  const std::string norm = Joined(*source, {"model.norm.weight"});
  const std::string fused =
      Joined(*source, {"model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
                       "model.layers.1.self_attn.v_proj.weight"});
  const auto gpu = [](const std::string& bytes) {
    return device::GpuHashText(
        device::FinishGpuHash(device::GpuHashSum(AsBytes(bytes), 0, bytes.size()), bytes.size()));
  };
  const auto on_gpu = source->ExpectedHashes({2, ParameterHashKind::kGpu}).value();
  ASSERT_EQ(on_gpu.size(), 2U);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(on_gpu[rank].rank, TpRank(rank));
    EXPECT_EQ(on_gpu[rank].hashes.at("model.norm.weight"), gpu(norm));
  }
  const auto alone = source->ExpectedHashes({1, ParameterHashKind::kGpu}).value();
  EXPECT_EQ(alone[0].hashes.at("model.layers.1.self_attn.qkv_proj.weight"), gpu(fused));
  const auto on_host = source->ExpectedHashes({1, ParameterHashKind::kSha256Prefix}).value();
  EXPECT_EQ(on_host[0].hashes.at("model.layers.1.self_attn.qkv_proj.weight"),
            device::Sha256Hex(AsBytes(fused)).substr(0, 16));
  EXPECT_EQ(on_host[0].hashes.size(), alone[0].hashes.size());
}

}  // namespace
}  // namespace refit::runtime
