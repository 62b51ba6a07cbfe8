// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "refit/base/prng.h"
#include "refit/base/str.h"
#include "sim/fault_table.h"

namespace refit::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kSeeds = 3000;

TEST(DrawPlan, IsAcceptedAndTheSameEveryTime) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Plan plan = DrawPlan(seed);
    EXPECT_TRUE(CheckPlan(plan).ok()) << "seed " << seed << ": " << CheckPlan(plan).ToString();
    EXPECT_EQ(plan, DrawPlan(seed)) << "seed " << seed;
  }
}

TEST(DrawPlan, ReachesEveryKindOfFaultEveryCommandAndEachRepetition) {
  std::set<FaultKind> kinds;
  std::set<std::pair<sync::AgentCommandKind, bool>> commands;  // the first one, a later one
  std::set<std::uint32_t> engines;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Plan plan = DrawPlan(seed);
    engines.insert(plan.engines);
    for (const Fault& fault : plan.faults) {
      kinds.insert(fault.kind);
      if (fault.when.command) {
        commands.emplace(*fault.when.command, fault.when.skip > 0);
      }
    }
  }
  EXPECT_EQ(kinds.size(), static_cast<std::size_t>(FaultKind::kCount));
  EXPECT_EQ(commands.size(), 2 * (static_cast<std::size_t>(sync::AgentCommandKind::kKill) + 1));
  EXPECT_EQ(*engines.begin(), 1U);
  EXPECT_GT(*engines.rbegin(), 8U);
}

TEST(DrawPlan, MostSeedsHaveFaultsAndSomeHaveNone) {
  int none = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    none += DrawPlan(seed).faults.empty() ? 1 : 0;
  }
  EXPECT_GT(none, static_cast<int>(kSeeds) / 20);
  EXPECT_LT(none, static_cast<int>(kSeeds) / 3);
}

TEST(PlanText, SaysWhatItMeansInWords) {
  Plan plan;
  plan.seed = 7;
  plan.engines = 3;
  plan.link = true;
  plan.faults = {
      {.kind = FaultKind::kKillEngine,
       .when = {.command = sync::AgentCommandKind::kTransfer, .slot = 1, .skip = 1},
       .target = 1},
      {.kind = FaultKind::kPartition,
       .when = {.at = milliseconds(2500)},
       .from = {ProcessKind::kController, 0},
       .to = {ProcessKind::kAgent, 1},
       .lasts = seconds(3)},
      {.kind = FaultKind::kLoseAnswer,
       .when = {.at = milliseconds(20), .command = sync::AgentCommandKind::kBegin},
       .operation = sync::Operation::kUpdate,
       .count = 2},
      {.kind = FaultKind::kSlow,
       .when = {},
       .from = {ProcessKind::kPolicy, 0},
       .to = {ProcessKind::kAgent, 2},
       .by = milliseconds(150),
       .lasts = seconds(1)},
  };
  EXPECT_EQ(ToText(plan),
            "seed 7\n"
            "link on\n"
            "engines 3\n"
            "at 2nd transfer of engine 1: kill engine 1\n"
            "at 2.5s for 3s: partition controller -> agent 1\n"
            "20ms after begin of engine 0: lose the answer to update of engine 0, 2 times\n"
            "at 0s for 1s: slow policy 0 -> agent 2 by 150ms\n");
}

TEST(PlanText, ReadsBackWhatItWrote) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Plan plan = DrawPlan(seed);
    const auto parsed = ParsePlan(ToText(plan));
    ASSERT_TRUE(parsed.ok()) << "seed " << seed << ": " << parsed.status().ToString() << "\n" << ToText(plan);
    EXPECT_EQ(*parsed, plan) << "seed " << seed << "\n" << ToText(plan);
  }
}

TEST(PlanText, KeepsEveryTimeToTheNanosecond) {
  Plan plan;
  for (const std::int64_t time :
       {1L, 999L, 1000L, 1001L, 999'999'999L, 1'000'000'000L, 1'000'000'001L, 3'600'000'000'000L}) {
    plan.sync_budget = Duration(time);
    const auto parsed = ParsePlan(ToText(plan));
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->sync_budget, plan.sync_budget) << ToText(plan);
  }
}

TEST(PlanText, SaysWhichLineItDoesNotUnderstandAndWhatBelongsThere) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"seed 1\nengines three", "line 2: 'engines three' is no value of engines"},
      {"# a comment\n\nat transfer of engine 0: explode", "line 3: does not understand 'explode'"},
      {"at noon: kill engine 0", "line 1: does not understand 'noon'"},
      {"at 1s: kill engine", "line 1: the line ends too early"},
      {"at 1s: refuse nap of engine 0", "line 1: does not understand 'nap'"},
      {"at 1s for ever: kill engine 0", "line 1: does not understand 'ever'"},
      {"at 2th transfer of engine 0: kill engine 0", "line 1: does not understand '2th'"},
      {"at 1s: kill engine 0 twice", "line 1: does not understand 'twice'"},
      {"make it so", "line 1: does not understand 'make'"},
      {"tp 1\ntp 2", "line 2: tp stands there twice"},
      {"at 1s: kill engine 9", "kill-engine is about engine 9 of 2"},
      {"at 1s: partition agent 0 -> agent 1", "partition names a link that is not there"},
      {"at 1s: cut the data of policy 0 -> agent 1", "cut-data needs a link"},
      {"router off\nat 1s: empty the router", "forget-router needs a router"},
      {"profile strict", "strict with 1 policies for 2 engines"},
      {"engines 0", "engines is 0"},
      {"sync-budget 0s", "sync-budget is 0"},
  };
  for (const auto& each : cases) {
    const auto parsed = ParsePlan(each.text);
    ASSERT_FALSE(parsed.ok()) << each.text;
    EXPECT_NE(parsed.status().message().find(each.says), std::string::npos) << each.text << "\n"
                                                                            << parsed.status().ToString();
    EXPECT_FALSE(parsed.status().remedy().empty()) << each.text;
  }
}

// Whatever the text, it is read as a plan that reads back the same, or refused with a reason.
TEST(PlanText, SurvivesMutatedTexts) {
  Prng prng(20261130);
  const std::string alphabet = "0123456789 .:,->\nkillengine transferatofsm#\t\x80";
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    std::string text = ToText(DrawPlan(seed % 500));
    for (std::uint64_t edits = 1 + prng.Below(4); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(prng.Below(text.size()));
      const char put = alphabet[static_cast<std::size_t>(prng.Below(alphabet.size()))];
      switch (prng.Below(3)) {
        case 0: text[at] = put; break;
        case 1: text.insert(at, 1, put); break;
        default: text.erase(at, 1 + static_cast<std::size_t>(prng.Below(3))); break;
      }
      if (text.empty()) {
        text = "\n";
      }
    }
    const auto parsed = ParsePlan(text);
    if (!parsed.ok()) {
      EXPECT_FALSE(parsed.status().message().empty());
      continue;
    }
    ++accepted;
    const auto again = ParsePlan(ToText(*parsed));
    ASSERT_TRUE(again.ok()) << text << "\n" << ToText(*parsed) << again.status().ToString();
    EXPECT_EQ(*again, *parsed) << text;
  }
  EXPECT_GT(accepted, 100);
}

TEST(FaultTable, EveryRowStandsAtItsKindAndHasAPhraseOfItsOwn) {
  std::set<std::string_view> phrases;
  for (std::size_t i = 0; i < FaultTable().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(FaultTable()[i].kind), i);
    EXPECT_TRUE(phrases.insert(FaultTable()[i].phrase).second) << FaultTable()[i].phrase;
  }
}

}  // namespace
}  // namespace refit::sim
