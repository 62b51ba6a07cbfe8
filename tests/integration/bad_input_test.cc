// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Bad input, at least: each ends in a clear error within its deadline, says what the engines hold, leaves nothing
// behind, and the next sync works.

#include <filesystem>
#include <functional>
#include <thread>

#include "refit/checkpoint/checkpoint.h"
#include "refit/checkpoint/safetensors.h"
#include "tests/integration/fleet.h"

namespace refit::test {
namespace {

bool Mentions(const rpc::SyncReport& report, std::string_view text) {
  return Describe(report).find(text) != std::string::npos;
}

// The checkpoint at `from` with one tensor changed, as a folder of its own.
std::string Altered(const Fleet& fleet, std::string_view name,
                    const std::function<void(std::vector<checkpoint::NamedTensor>&)>& change) {
  const std::string folder = fleet.folder() / name;
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(fleet.model() + "/config.json", folder + "/config.json");
  const auto source = checkpoint::Checkpoint::Open(fleet.model());
  EXPECT_TRUE(source.has_value());
  std::vector<checkpoint::NamedTensor> tensors;
  for (std::size_t i = 0; i < (*source)->manifest().tensor_count(); ++i) {
    tensors.push_back({(*source)->manifest().tensors()[i], (*source)->bytes(i)});
  }
  change(tensors);
  EXPECT_TRUE(checkpoint::WriteSafetensors(folder + "/model.safetensors", tensors).ok());
  return folder;
}

void ExpectRefusedThenFine(Fleet& fleet, const std::string& source, std::string_view mentions) {
  const rpc::SyncReport refused = fleet.Sync(source);
  EXPECT_FALSE(refused.status.ok());
  EXPECT_FALSE(refused.committed);
  EXPECT_TRUE(Mentions(refused, mentions)) << Describe(refused);
  for (const rpc::EngineReport& engine : refused.engines) {
    EXPECT_EQ(engine.residue.kind, sync::ResidueKind::kOld) << Describe(refused);
  }
  const rpc::SyncReport fine = fleet.Sync();
  ASSERT_TRUE(fine.status.ok()) << Describe(fine);
  EXPECT_TRUE(fleet.Verify().verified);
}

TEST(BadInput, ATensorThatIsMissingIsNamedBeforeAnyoneIsPaused) {
  Fleet fleet;
  const std::string source = Altered(fleet, "missing", [](auto& tensors) { tensors.erase(tensors.begin() + 3); });
  ExpectRefusedThenFine(fleet, source, "model.layers.0");
}

TEST(BadInput, ATensorThatIsNotTheModelsIsNamed) {
  Fleet fleet;
  const std::string source = Altered(fleet, "extra", [](auto& tensors) {
    checkpoint::NamedTensor extra = tensors[0];
    extra.spec.name = "model.layers.0.self_attn.extra_proj.weight";
    tensors.push_back(extra);
  });
  ExpectRefusedThenFine(fleet, source, "extra_proj");
}

TEST(BadInput, AWrongShapeIsNamed) {
  Fleet fleet;
  const std::string source = Altered(fleet, "shape", [](auto& tensors) {
    auto& shape = tensors[0].spec.shape;
    std::swap(shape[0], shape[1]);
  });
  ExpectRefusedThenFine(fleet, source, "embed_tokens");
}

TEST(BadInput, AWrongDTypeIsNamed) {
  Fleet fleet;
  const std::string source =
      Altered(fleet, "dtype", [](auto& tensors) { tensors[0].spec.dtype = weights::DType::kFloat16; });
  ExpectRefusedThenFine(fleet, source, "float16");
}

TEST(BadInput, ASourceThatIsNotThereIsNamed) {
  Fleet fleet({.policies = 1, .engines = 1});
  ExpectRefusedThenFine(fleet, "/nonexistent/weights", "/nonexistent/weights");
}

// "On one rank only": the ranks' manifests differ, and the odd one out is named.
TEST(BadInput, APolicyRankWithOtherTensorsIsNamed) {
  Fleet fleet({.policies = 2, .engines = 1});
  const std::string source = Altered(fleet, "one-rank", [](auto& tensors) { tensors.pop_back(); });
  fleet.StartPolicy(1, source);
  const rpc::SyncReport refused = fleet.Sync();
  EXPECT_FALSE(refused.status.ok());
  EXPECT_TRUE(Mentions(refused, "policy rank 1")) << Describe(refused);
  fleet.StartPolicy(1, fleet.model());
  const rpc::SyncReport fine = fleet.Sync();
  EXPECT_TRUE(fine.status.ok()) << Describe(fine);
}

// Same names and shapes, other bytes: the senders' roots differ, so nobody publishes, and the next sync repairs.
TEST(BadInput, PolicyRanksWithOtherBytesPublishNothing) {  // S34
  Fleet fleet({.policies = 2, .engines = 2});
  fleet.StartPolicy(1, MakeCheckpoint(fleet.folder(), "other-bytes", "tiny-llama", 9));
  const rpc::SyncReport refused = fleet.Sync();
  EXPECT_FALSE(refused.status.ok());
  EXPECT_FALSE(refused.committed);
  EXPECT_TRUE(Mentions(refused, "root")) << Describe(refused);
  for (const rpc::EngineReport& engine : refused.engines) {
    EXPECT_EQ(engine.residue.kind, sync::ResidueKind::kMixed) << Describe(refused);
    EXPECT_FALSE(engine.serving);
  }
  fleet.StartPolicy(1, fleet.model());
  const rpc::SyncReport fine = fleet.Sync();
  ASSERT_TRUE(fine.status.ok()) << Describe(fine);
  EXPECT_TRUE(fleet.Verify().verified);
}

// A file truncated while mapped is data loss, not a crash; engines that took some of it are mixed and stay paused.
TEST(BadInput, ASourceTruncatedWhileMappedFailsTheRefitAndTheNextOneRepairs) {
  Fleet fleet({.policies = 1, .engines = 1});
  const std::string source = Altered(fleet, "truncated", [](auto&) {});
  ASSERT_TRUE(fleet.Sync(source).status.ok());  // mapped, and kept mapped
  const auto size = std::filesystem::file_size(source + "/model.safetensors");
  std::filesystem::resize_file(source + "/model.safetensors", size / 2);
  const rpc::SyncReport lost = fleet.Sync(source);
  EXPECT_FALSE(lost.status.ok());
  const rpc::SyncReport fine = fleet.Sync();
  ASSERT_TRUE(fine.status.ok()) << Describe(fine);
  EXPECT_TRUE(fleet.Verify().verified);
}

TEST(BadInput, APolicyWorkerThatDiesInMidLoadIsReportedAndItsSuccessorRepairs) {
  Fleet fleet(
      {.policies = 1, .engines = 1, .load_bytes = 16 * kKiB, .engine_args = {{"--fault", "slow:update:2:1.0"}}});
  std::thread killer([&fleet] {
    const bool transferring = exec::WaitUntil([&fleet] { return fleet.GetStatus().phase == "transferring"; },
                                              exec::Now() + std::chrono::seconds(10));
    EXPECT_TRUE(transferring);
    fleet.StopPolicy(0);
  });
  const rpc::SyncReport lost = fleet.Sync({}, std::chrono::seconds(15));
  killer.join();
  EXPECT_FALSE(lost.status.ok());
  EXPECT_FALSE(lost.committed);
  ASSERT_EQ(lost.engines.size(), 1U);
  EXPECT_NE(lost.engines[0].residue.kind, sync::ResidueKind::kComplete) << Describe(lost);
  fleet.StartPolicy(0, fleet.model());
  const rpc::SyncReport fine = fleet.Sync();
  ASSERT_TRUE(fine.status.ok()) << Describe(fine);
  EXPECT_TRUE(fleet.Verify().verified);
}

// An engine that misbehaves in one call: the survivor is published (resilient), the bad one is ended and comes back as
// a new incarnation, and the next refit takes it in. RC-RPC-01, -04, -06, RX-QUAR-02.
class BadEngine : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Faults, BadEngine,
                         testing::Values("broken-json:update:2", "hang:update:2", "die:update:2", "drip:pause",
                                         "echo:begin", "close:end", "http500:flush", "hang:continue", "exit:update:1"));

TEST_P(BadEngine, TheOtherEngineIsPublishedAndTheNextRefitTakesTheNewIncarnationIn) {
  Fleet fleet({.engine_args = {{}, {"--fault", GetParam()}},
               .call_deadline = std::chrono::seconds(2),
               .update_deadline = std::chrono::seconds(2)});
  const Incarnation before = fleet.GetStatus().slots[1].incarnation;
  const rpc::SyncReport report = fleet.Sync();
  EXPECT_TRUE(report.committed) << Describe(report);
  ASSERT_EQ(report.engines.size(), 2U);
  EXPECT_TRUE(report.engines[0].serving) << Describe(report);
  EXPECT_FALSE(report.engines[1].serving) << Describe(report);
  EXPECT_FALSE(report.engines[1].status.ok());
  const bool refused = report.engines[1].residue.kind == sync::ResidueKind::kOld;
  if (!refused) {
    fleet.AwaitNewIncarnation(1, before);
  }
}

// One refusal: nothing latches, the engine keeps its incarnation where its family can go on, and the next refit
// repairs.
TEST(BadEngine, ARefusedUpdateIsRepairedByTheNextFullSet) {
  Fleet fleet({.policies = 1, .engines = 1, .engine_args = {{"--fault", "refuse:update:2"}}});
  const Incarnation before = fleet.GetStatus().slots[0].incarnation;
  const rpc::SyncReport refused = fleet.Sync();
  EXPECT_FALSE(refused.status.ok());
  ASSERT_EQ(refused.engines.size(), 1U);
  EXPECT_EQ(refused.engines[0].residue.kind, sync::ResidueKind::kMixed) << Describe(refused);
  const rpc::SyncReport fine = fleet.Sync();
  ASSERT_TRUE(fine.status.ok()) << Describe(fine);
  EXPECT_EQ(fleet.GetStatus().slots[0].incarnation, before);
  EXPECT_TRUE(fleet.Verify().verified);
}

}  // namespace
}  // namespace refit::test
