// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Fleets to begin with, and what holds after every failure, whatever it was.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/fleet_rig.h"

namespace refit::testing {

inline constexpr sync::SessionFamily kFamilies[] = {sync::SessionFamily::kA, sync::SessionFamily::kB,
                                                    sync::SessionFamily::kC};
inline constexpr sync::Profile kProfiles[] = {sync::kStrict, sync::kResilient};

inline bool IsStrict(const sync::Profile& profile) { return profile.on_engine_loss == sync::OnEngineLoss::kFail; }

inline RigOptions Routed(std::uint32_t engines = 2) {
  return {.engines = engines, .policies = engines, .use_fault_tolerance = true, .use_router = true};
}

inline RigOptions CatchingUp(std::uint32_t engines = 2) {
  RigOptions options = Routed(engines);
  options.retains = true;
  options.catch_up_budget = std::chrono::seconds(30);
  return options;
}

// Everybody serves and is routed; the trace begins here.
inline void Serve(FleetRig& rig) {
  const control::SyncAnswered answer = rig.Sync();
  ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
  rig.RunFor(std::chrono::seconds(5));
  rig.ClearTrace();
}

// The next sync: refused without a call where latched; else, with the dead replaced, everybody serves a new version.
inline void ExpectNextSyncWorks(FleetRig& rig, std::uint32_t engines) {
  const std::size_t calls = rig.log().size();
  if (rig.controller().latch().has_value()) {
    const control::SyncAnswered refused = rig.Sync();
    EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.status.message(), ::testing::HasSubstr("terminal"));
    EXPECT_FALSE(refused.outcome.has_value());
    EXPECT_EQ(rig.log().size(), calls);  // RC-TERM-02
    return;
  }
  for (std::uint32_t slot = 0; slot < engines; ++slot) {
    rig.engine(slot).ClearFaults();
    if (rig.engine(slot).dead()) {
      rig.Launch(slot);
    }
  }
  rig.RunUntilQuiet();
  const control::SyncAnswered answer = rig.Sync();
  EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
  for (std::uint32_t slot = 0; slot < engines; ++slot) {
    EXPECT_TRUE(rig.engine(slot).serves(answer.outcome->version)) << "engine " << slot;
  }
}

// RX-COMMIT-11: what the agent reports is what the engine holds, and who may generate.
inline void ExpectResidueTable(FleetRig& rig, std::uint32_t slot) {
  const sync::Residue& residue = rig.agent(slot).residue();
  const EngineDouble& engine = rig.engine(slot);
  switch (residue.kind) {
    case sync::ResidueKind::kOld:
      if (engine.generates()) {
        EXPECT_TRUE(engine.serves(residue.version)) << "engine " << slot;
        if (residue.version != WeightVersion(0)) {  // its launch weights, never paused
          EXPECT_EQ(residue.version, rig.controller().committed());
        }
      }
      break;
    case sync::ResidueKind::kMixed:
    case sync::ResidueKind::kComplete:
      EXPECT_FALSE(engine.generates()) << "engine " << slot << " holds " << ToString(residue);
      break;
    case sync::ResidueKind::kUnknown: EXPECT_TRUE(engine.dead()) << "engine " << slot; break;
  }
}

}  // namespace refit::testing
