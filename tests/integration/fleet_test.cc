// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole refits over real processes: the public entry point through the real rpc path (RC-TEST-03).

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "tests/integration/fleet.h"

namespace refit::test {
namespace {

class EveryFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::Values("a", "b", "c"));

TEST_P(EveryFamily, ARefitInstallsExactlyThePublishedBytesOnEveryRank) {
  Fleet fleet({.family = GetParam()});
  const rpc::SyncReport report = fleet.Sync();
  ASSERT_TRUE(report.status.ok()) << Describe(report);
  EXPECT_TRUE(report.committed);
  EXPECT_EQ(report.version, WeightVersion(1));
  ASSERT_EQ(report.engines.size(), 2U);
  for (const rpc::EngineReport& engine : report.engines) {
    EXPECT_TRUE(engine.serving);
    EXPECT_EQ(engine.totals.bytes, report.published.bytes * 3);
    EXPECT_GT(engine.totals.loads, 1U);
    EXPECT_GT(engine.stall_seconds, 0);
    EXPECT_LE(engine.stall_seconds, report.seconds);
  }
  const rpc::VerifyReport verified = fleet.Verify();
  EXPECT_TRUE(verified.verified) << Describe(verified);
  ASSERT_EQ(verified.engines.size(), 2U);
  EXPECT_EQ(verified.engines[0].rank_count, 3U);
}

TEST(Fleet, TheNextRefitReplacesEveryByte) {
  Fleet fleet;
  const std::string other = MakeCheckpoint(fleet.folder(), "other", "tiny-llama", 2);
  ASSERT_TRUE(fleet.Sync().status.ok());
  const rpc::SyncReport second = fleet.Sync(other);
  ASSERT_TRUE(second.status.ok()) << Describe(second);
  EXPECT_EQ(second.version, WeightVersion(2));
  EXPECT_TRUE(fleet.Verify().verified);
  EXPECT_FALSE(fleet.Verify(fleet.model()).verified);  // verify can fail: what was before is gone
  EXPECT_TRUE(fleet.Verify(other).verified);
}

// Settled D8: on request, as long as the source still holds that version, wherever it came from.
TEST(Fleet, VerifyOnRequestComparesWithTheSourceOfThePublishedVersion) {
  Fleet fleet({.policies = 1, .engines = 1, .verify = runtime::VerifyWhen::kOnRequest});
  const std::string other = MakeCheckpoint(fleet.folder(), "other", "tiny-llama", 2);
  ASSERT_TRUE(fleet.Sync(other).status.ok());
  const rpc::VerifyReport verified = fleet.Verify();
  EXPECT_TRUE(verified.verified) << Describe(verified);
  EXPECT_FALSE(fleet.Verify(fleet.model()).verified);
}

// RC-BKT-03, RC-BKT-08: over a link, pieces smaller than tensors, refit after refit over the same links.
void ExpectRefitsOverALink(const FleetOptions& options) {
  Fleet fleet(options);
  const std::string other = MakeCheckpoint(fleet.folder(), "other", "tiny-llama", 2);
  for (const std::string& source : {std::string(), other, std::string()}) {
    const rpc::SyncReport report = fleet.Sync(source);
    ASSERT_TRUE(report.status.ok()) << Describe(report);
    const rpc::VerifyReport verified = fleet.Verify();
    EXPECT_TRUE(verified.verified) << Describe(verified);
  }
}

TEST(Fleet, RefitsOverALinkInstallThePublishedBytes) { ExpectRefitsOverALink({.transport = "loopback"}); }

TEST(Fleet, RefitsOverNixlInstallThePublishedBytes) {
  const char* const library = std::getenv("REFIT_NIXL");
  if (library == nullptr || *library == '\0') {
    GTEST_SKIP() << "REFIT_NIXL does not name the wheel nixl-cu13 (make nixl fetches it)";
  }
  ExpectRefitsOverALink({.transport = "nixl", .nixl_library = library});
}

// RC-BIND-04, RX-BIND-02: what did not change is not proved again; of what did, every link is, before anybody pauses.
TEST(Fleet, OnlyAReplacedPeerBindsAgain) {
  using Handshakes = std::vector<std::string>;
  for (const char* const transport : {"shm", "loopback"}) {
    Fleet fleet({.transport = transport});  // engine k is fed by policy worker k
    const auto sync = [&fleet] {
      const rpc::SyncReport report = fleet.Sync();
      EXPECT_TRUE(report.status.ok()) << Describe(report);
    };
    EXPECT_EQ(HandshakesOf(sync), (Handshakes{"engine 0: link to policy rank 0", "engine 1: link to policy rank 1"}));
    EXPECT_EQ(HandshakesOf(sync), Handshakes());
    const rpc::SlotReport old = fleet.GetStatus().slots[0];
    ASSERT_TRUE(old.engine_pid > 0 && kill(static_cast<pid_t>(old.engine_pid), SIGKILL) == 0);
    fleet.AwaitNewIncarnation(0, old.incarnation);
    EXPECT_EQ(HandshakesOf(sync), Handshakes{"engine 0: link to policy rank 0"});
    fleet.StartPolicy(1, fleet.model());
    EXPECT_EQ(HandshakesOf(sync), Handshakes{"engine 1: link to policy rank 1"});
    EXPECT_TRUE(fleet.Verify().verified);
  }
}

// The state words of a slot; a life that no refit has reached is stale, whoever was there before.
// RC-TERM-05: links are closed once, engines go on, and the next refit links them again.
TEST(Fleet, AShutdownClosesTheLinksAndTheNextRefitOpensThem) {
  Fleet fleet({.engines = 2});
  EXPECT_TRUE(fleet.Shutdown().ok());
  ASSERT_TRUE(fleet.Sync().status.ok());
  const Status closed = fleet.Shutdown();
  EXPECT_TRUE(closed.ok()) << closed.ToString();
  const rpc::SyncReport again = fleet.Sync();
  EXPECT_TRUE(again.status.ok()) << again.status.ToString();
  const auto binds =
      std::count_if(again.spans.begin(), again.spans.end(), [](const rpc::Span& span) { return span.name == "bind"; });
  EXPECT_EQ(binds, 2);
}

TEST(Fleet, StatusSaysWhatEverySlotIsDoing) {
  Fleet fleet({.policies = 1, .engines = 1});
  EXPECT_EQ(fleet.GetStatus().slots[0].state, "stale");
  ASSERT_TRUE(fleet.Sync().status.ok());
  EXPECT_EQ(fleet.GetStatus().slots[0].state, "serving");
  const rpc::SlotReport old = fleet.GetStatus().slots[0];
  ASSERT_TRUE(old.engine_pid > 0 && kill(static_cast<pid_t>(old.engine_pid), SIGKILL) == 0);
  fleet.AwaitNewIncarnation(0, old.incarnation);
  EXPECT_EQ(fleet.GetStatus().slots[0].state, "stale");
}

// RC-TOPO-02: rank i feeds rollout rank i where there are enough policy ranks; the aligner joins an engine's streams.
TEST(Fleet, EachRankIsFedByItsOwnPolicyWorkerWhereThereAreEnough) {
  Fleet fleet({.policies = 4, .engines = 1, .tp_size = 3, .profile = sync::kStrict});
  const rpc::SyncReport report = fleet.Sync();
  ASSERT_TRUE(report.status.ok()) << Describe(report);
  EXPECT_TRUE(fleet.Verify().verified);
}

TEST(Fleet, AMixtureOfExpertsLoadsAndVerifies) {
  Fleet fleet({.shape = "tiny-moe", .policies = 1, .engines = 1, .tp_size = 2});
  const rpc::SyncReport report = fleet.Sync();
  ASSERT_TRUE(report.status.ok()) << Describe(report);
  const rpc::VerifyReport verified = fleet.Verify();
  EXPECT_TRUE(verified.verified) << Describe(verified);
}

TEST(Fleet, AQwen3WithSeveralLoadSizesVerifies) {
  for (const ByteCount load_bytes : {ByteCount{1}, 10 * kKiB, 4 * kMiB}) {
    Fleet fleet({.shape = "tiny", .policies = 1, .engines = 1, .tp_size = 2, .load_bytes = load_bytes});
    const rpc::SyncReport report = fleet.Sync();
    ASSERT_TRUE(report.status.ok()) << Describe(report);
    EXPECT_TRUE(fleet.Verify().verified);
  }
}

// A version that nobody published is unproven, never verified (D8).
TEST(Fleet, BeforeTheFirstRefitNothingIsProven) {
  Fleet fleet({.policies = 1, .engines = 1});
  const rpc::VerifyReport report = fleet.Verify();
  EXPECT_TRUE(report.unproven);
  EXPECT_FALSE(report.verified);
  EXPECT_FALSE(fleet.Verify(fleet.model()).verified);  // random weights
}

}  // namespace
}  // namespace refit::test
