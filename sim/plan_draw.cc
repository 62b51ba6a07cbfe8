// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A plan from a seed. Half of the faults wait for a command, so that every phase of a refit is hit however short it is;
// the others come at an instant. Times straddle the machines' own deadlines, so that some of them pass.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "refit/base/prng.h"
#include "sim/fault_table.h"
#include "sim/plan.h"

namespace refit::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : prng_(seed ^ 0x706c616eU) {}  // not the numbers of the run itself

  std::uint32_t Between(std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(prng_.Below(high - low + 1));
  }
  bool InHundred(std::uint32_t chances) { return prng_.Below(100) < chances; }
  template <typename Value, std::size_t kSize>
  Value OneOf(const std::array<Value, kSize>& values) {
    return values[static_cast<std::size_t>(prng_.Below(kSize))];
  }
  Duration Below(Duration bound) {
    const auto steps = static_cast<std::uint64_t>(bound / milliseconds(1));  // readable in a plan
    return milliseconds(static_cast<std::int64_t>(prng_.Below(steps)));
  }

 private:
  Prng prng_;
};

void DrawSizes(Dice& dice, Plan& plan) {
  plan.strict = dice.InHundred(15);
  plan.family = dice.OneOf(
      std::array{sync::SessionFamily::kA, sync::SessionFamily::kB, sync::SessionFamily::kC, sync::SessionFamily::kC});
  plan.fault_tolerance = dice.InHundred(90);
  plan.router = dice.InHundred(85);
  plan.link = dice.InHundred(50);
  plan.engines = dice.InHundred(88) ? dice.Between(1, 3) : dice.Between(4, dice.InHundred(70) ? 6 : kMostEngines);
  plan.tp_size = dice.InHundred(60) ? 1 : dice.Between(2, 4);
  plan.policies = dice.Between(1, 3);
  if (plan.strict) {  // a policy worker for each of an engine's ranks
    plan.engines = std::min(plan.engines, 3U);
    plan.tp_size = std::min(plan.tp_size, 2U);
    plan.policies = plan.engines * plan.tp_size + dice.Between(0, 1);
  }
  plan.tensors = dice.Between(2, 8);
  plan.load_bytes = dice.OneOf(std::array{16U, 48U, 64U, 128U, 256U});
  plan.request_interval =
      dice.OneOf(std::array<Duration, 4>{milliseconds(10), milliseconds(500), seconds(3), seconds(20)});
  plan.sync_budget =
      dice.OneOf(std::array<Duration, 5>{seconds(2), seconds(10), seconds(30), seconds(60), seconds(60)});
}

bool IsPossible(const Plan& plan, const FaultRow& row) {
  switch (row.needs) {
    case FaultNeeds::kNothing: return true;
    case FaultNeeds::kFaultTolerance: return plan.fault_tolerance;
    case FaultNeeds::kRouter: return plan.router;
    case FaultNeeds::kLink: return plan.link;
  }
  return false;
}

std::vector<const FaultRow*> DrawKinds(Dice& dice, const Plan& plan) {
  std::vector<const FaultRow*> kinds;
  for (const FaultRow& row : FaultTable()) {
    const bool on = dice.InHundred(20);  // drawn for all, so that one more kind changes few seeds
    if (on && IsPossible(plan, row)) {
      kinds.push_back(&row);
    }
  }
  return kinds;
}

Trigger DrawTrigger(Dice& dice, const Plan& plan) {
  Trigger when;
  if (dice.InHundred(60)) {
    // The long phases twice.
    using enum sync::AgentCommandKind;
    constexpr std::array kCommands = {kBind,     kAttempt,   kOnloadWeights, kPause, kFlush, kBegin,
                                      kTransfer, kTransfer,  kTransfer,      kEnd,   kEnd,   kActivate,
                                      kActivate, kResumeOld, kRelease,       kAbort, kHold,  kKill};
    when.command = dice.OneOf(kCommands);
    when.slot = dice.Between(0, plan.engines - 1);
    when.skip = dice.InHundred(70) ? 0 : dice.Between(1, 4);
    const bool later = dice.InHundred(60);
    when.at = later ? dice.Below(dice.OneOf(std::array<Duration, 3>{milliseconds(5), milliseconds(50), seconds(1)}))
                    : Duration::zero();
  } else {
    when.at = dice.Below(4 * (plan.request_interval + seconds(2)));
  }
  return when;
}

Process DrawEnd(Dice& dice, const Plan& plan, ProcessKind kind) {
  switch (kind) {
    case ProcessKind::kAgent:
    case ProcessKind::kEngine: return {kind, dice.Between(0, plan.engines - 1)};
    case ProcessKind::kPolicy: return {kind, dice.Between(0, plan.policies - 1)};
    case ProcessKind::kController:
    case ProcessKind::kRouter: break;
  }
  return {kind, 0};
}

void DrawLink(Dice& dice, const Plan& plan, Fault& fault) {
  using enum ProcessKind;
  fault.from = {kController, 0};
  fault.to = DrawEnd(dice, plan, dice.OneOf(std::array{kAgent, kAgent, kPolicy, plan.router ? kRouter : kAgent}));
  if (dice.InHundred(20)) {
    fault.from = DrawEnd(dice, plan, kPolicy);
    fault.to = DrawEnd(dice, plan, kAgent);
  }
  if (dice.InHundred(50)) {
    std::swap(fault.from, fault.to);
  }
}

// Mostly of a policy worker that feeds that engine, when it does.
void DrawPair(Dice& dice, const Plan& plan, Fault& fault) {
  fault.from = DrawEnd(dice, plan, ProcessKind::kPolicy);
  fault.to = DrawEnd(dice, plan, ProcessKind::kAgent);
  if (dice.InHundred(85)) {
    const bool enough = plan.policies >= plan.engines * plan.tp_size;
    const std::uint32_t rank = dice.Between(0, plan.tp_size - 1);
    fault.from.index = enough ? fault.to.index * plan.tp_size + rank : fault.to.index % plan.policies;
    fault.when = {.at = dice.InHundred(50) ? dice.Below(milliseconds(5)) : Duration::zero(),
                  .command = sync::AgentCommandKind::kTransfer,
                  .slot = fault.to.index,
                  .skip = dice.Between(0, 2)};
  }
  if (fault.kind == FaultKind::kFailBind) {  // links are bound where somebody is new
    fault.when = {.at = fault.when.at};
  }
}

// What lets it happen: a launch, a kill of an engine that lives, or another controller.
Fault DrawCause(Dice& dice, const Plan& plan, const Fault& fault) {
  Fault cause{.kind = FaultKind::kKillEngine, .when = DrawTrigger(dice, plan), .target = fault.target};
  if (fault.kind == FaultKind::kKillUnconfirmed) {
    using enum sync::Operation;
    cause.kind = FaultKind::kLoseAnswer;
    cause.operation = dice.OneOf(std::array{kPause, kUpdate, kUpdate, kResume});
  } else if (fault.kind == FaultKind::kStaleLookup) {
    cause.kind = FaultKind::kSecondController;
    cause.target = 0;
  }
  return cause;
}

Fault DrawFault(Dice& dice, const Plan& plan, const FaultRow& row) {
  Fault fault{.kind = row.kind, .when = DrawTrigger(dice, plan)};
  switch (row.shape) {
    case FaultShape::kPlain: break;
    case FaultShape::kSlot: fault.target = dice.Between(0, plan.engines - 1); break;
    case FaultShape::kPolicy: fault.target = dice.Between(0, plan.policies - 1); break;
    case FaultShape::kCall:
      fault.target = dice.Between(0, plan.engines - 1);
      if (dice.InHundred(80)) {
        fault.operation = static_cast<sync::Operation>(dice.Between(0, static_cast<int>(sync::Operation::kRelease)));
      }
      break;
    case FaultShape::kBetween: DrawLink(dice, plan, fault); break;
    case FaultShape::kPair: DrawPair(dice, plan, fault); break;
  }
  if (fault.kind == FaultKind::kAddSlot) {
    fault.target = plan.engines;  // the next place
  }
  if (fault.kind == FaultKind::kSlow || fault.kind == FaultKind::kDuplicate || fault.kind == FaultKind::kReorder) {
    fault.by =
        milliseconds(1) + dice.Below(dice.OneOf(std::array<Duration, 3>{milliseconds(50), seconds(2), seconds(20)}));
  }
  if (row.lasts == FaultLasts::kAWhile && !dice.InHundred(15)) {
    fault.lasts =
        milliseconds(1) + dice.Below(dice.OneOf(std::array<Duration, 3>{milliseconds(200), seconds(4), seconds(40)}));
  }
  if (row.lasts == FaultLasts::kOnce && dice.InHundred(25)) {
    const bool repeats = row.shape == FaultShape::kCall || row.shape == FaultShape::kBetween ||
                         row.shape == FaultShape::kPair || fault.kind == FaultKind::kFailLaunch ||
                         fault.kind == FaultKind::kKillUnconfirmed;
    fault.count = repeats ? dice.Between(2, 5) : 1;
  }
  return fault;
}

void DrawFaults(Dice& dice, const std::vector<const FaultRow*>& kinds, std::uint32_t count, Plan& plan) {
  bool added = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const FaultRow& row = *kinds[dice.Between(0, static_cast<std::uint32_t>(kinds.size()) - 1)];
    if (row.kind == FaultKind::kAddSlot && std::exchange(added, true)) {
      continue;  // one more place is enough
    }
    plan.faults.push_back(DrawFault(dice, plan, row));
    const bool waits = row.kind == FaultKind::kFailLaunch || row.kind == FaultKind::kKillUnconfirmed ||
                       row.kind == FaultKind::kStaleLookup;
    if (waits && dice.InHundred(75)) {
      plan.faults.back().when = {};  // it waits
      plan.faults.push_back(DrawCause(dice, plan, plan.faults.back()));
    }
  }
}

}  // namespace

Plan DrawPlan(std::uint64_t seed) {
  Dice dice(seed);
  Plan plan;
  plan.seed = seed;
  DrawSizes(dice, plan);
  const std::vector<const FaultRow*> kinds = DrawKinds(dice, plan);
  DrawFaults(dice, kinds, kinds.empty() ? 0 : dice.Between(0, 6), plan);
  if (!plan.fault_tolerance && plan.family != sync::SessionFamily::kB && dice.InHundred(40)) {
    plan.attached = dice.Between(0, plan.engines - 1);
  }
  return plan;
}

Plan DrawPlanOf(std::uint64_t seed, const std::vector<FaultKind>& kinds) {
  Dice dice(seed);
  Plan plan;
  plan.seed = seed;
  DrawSizes(dice, plan);
  std::vector<const FaultRow*> rows;
  for (const FaultKind kind : kinds) {
    rows.push_back(&RowOf(kind));
  }
  DrawFaults(dice, rows, dice.Between(1, 6), plan);
  return plan;
}

}  // namespace refit::sim
