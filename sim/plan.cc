// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/plan.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string_view>

#include "refit/base/str.h"
#include "sim/fault_table.h"

namespace refit::sim {
namespace {

using enum FaultKind;
using enum FaultShape;
using enum FaultNeeds;
using enum FaultLasts;

constexpr FaultRow kRows[] = {
    {kKillEngine, "kill-engine", "kill engine", kSlot, kNothing, kOnce},
    {kKillAgent, "kill-agent", "kill agent", kSlot, kNothing, kOnce},
    {kFreezeEngine, "freeze-engine", "freeze engine", kSlot, kNothing, kAWhile},
    {kFreezeAgent, "freeze-agent", "freeze agent", kSlot, kNothing, kAWhile},
    {kKillPolicy, "kill-policy", "kill policy", kPolicy, kNothing, kOnce},
    {kBlockSource, "block-source", "block the source of policy", kPolicy, kNothing, kAWhile},
    {kKillController, "kill-controller", "kill the controller", kPlain, kNothing, kOnce},
    {kFreezeController, "freeze-controller", "freeze the controller", kPlain, kNothing, kAWhile},
    {kSecondController, "second-controller", "start a second controller", kPlain, kNothing, kOnce},
    {kRefuseCall, "refuse-call", "refuse", kCall, kNothing, kOnce},
    {kLoseAnswer, "lose-answer", "lose the answer to", kCall, kNothing, kOnce},
    {kLoseCall, "lose-call", "lose", kCall, kNothing, kOnce},
    {kDieInCall, "die-in-call", "die in", kCall, kNothing, kOnce},
    {kNeverHealthy, "never-healthy", "fail every generation of engine", kSlot, kFaultTolerance, kAWhile},
    {kFailProbe, "fail-probe", "answer probes late on engine", kSlot, kFaultTolerance, kAWhile},
    {kFailLaunch, "fail-launch", "fail the launch of engine", kSlot, kFaultTolerance, kOnce},
    {kKillUnconfirmed, "kill-unconfirmed", "leave unconfirmed the kill of engine", kSlot, kFaultTolerance, kOnce},
    {kPartition, "partition", "partition", kBetween, kNothing, kAWhile},
    {kSlow, "slow", "slow", kBetween, kNothing, kAWhile},
    {kDuplicate, "duplicate", "duplicate", kBetween, kNothing, kOnce},
    {kReorder, "reorder", "reorder", kBetween, kNothing, kOnce},
    {kDrop, "drop", "drop", kBetween, kNothing, kOnce},
    {kCutData, "cut-data", "cut the data of", kPair, kLink, kAWhile},
    {kFlipBit, "flip-bit", "flip a bit of", kPair, kLink, kOnce},
    {kLateRead, "late-read", "land late a read of", kPair, kLink, kOnce},
    {kFailBind, "fail-bind", "fail the bind of", kPair, kNothing, kOnce},
    {kFailAppend, "fail-append", "fail an append", kPlain, kNothing, kOnce},
    {kLateAppend, "late-append", "be late with an append", kPlain, kNothing, kOnce},
    {kLoseRouter, "lose-router", "silence the router", kPlain, kRouter, kAWhile},
    {kForgetRouter, "forget-router", "empty the router", kPlain, kRouter, kOnce},
    {kForeignEntry, "foreign-entry", "register by hand engine", kSlot, kRouter, kOnce},
    {kCancelSync, "cancel-sync", "cancel the sync", kPlain, kNothing, kOnce},
    {kRepeatRequest, "repeat-request", "repeat the request", kPlain, kNothing, kOnce},
    {kConcurrentSync, "concurrent-sync", "ask for another sync", kPlain, kNothing, kOnce},
    {kChangeWeights, "change-weights", "change the weights of policy", kPolicy, kNothing, kOnce},
    {kAddSlot, "add-slot", "add slot", kSlot, kFaultTolerance, kOnce},
    {kRemoveSlot, "remove-slot", "remove slot", kSlot, kFaultTolerance, kOnce},
    {kMirror, "mirror", "mirror a command to engine", kSlot, kNothing, kOnce},
    {kStaleLookup, "stale-lookup", "look up the old controller for engine", kSlot, kNothing, kOnce},
};
static_assert(std::size(kRows) == static_cast<std::size_t>(FaultKind::kCount));

std::uint32_t Slots(const Plan& plan) {
  const auto added =
      std::count_if(plan.faults.begin(), plan.faults.end(), [](const Fault& fault) { return fault.kind == kAddSlot; });
  return plan.engines + static_cast<std::uint32_t>(added);
}

bool IsThere(const Plan& plan, const Process& process) {
  switch (process.kind) {
    case ProcessKind::kController: return process.index == 0;
    case ProcessKind::kRouter: return process.index == 0 && plan.router;
    case ProcessKind::kPolicy: return process.index < plan.policies;
    case ProcessKind::kAgent:
    case ProcessKind::kEngine: return process.index < Slots(plan);
  }
  return false;
}

Status CheckNeeds(const Plan& plan, const FaultRow& row) {
  if (row.needs == kFaultTolerance && !plan.fault_tolerance) {
    return InvalidArgument(StrCat(row.name, " needs fault tolerance"), "turn it on, or leave the fault out");
  }
  if (row.needs == kRouter && !plan.router) {
    return InvalidArgument(StrCat(row.name, " needs a router"), "turn it on, or leave the fault out");
  }
  if (row.needs == kLink && !plan.link) {
    return InvalidArgument(StrCat(row.name, " needs a link"), "write `link on`, or leave the fault out");
  }
  return OkStatus();
}

Status CheckFault(const Plan& plan, const Fault& fault) {
  const FaultRow& row = RowOf(fault.kind);
  REFIT_RETURN_IF_ERROR(CheckNeeds(plan, row));
  const std::uint32_t slots = Slots(plan);
  if (fault.when.command && fault.when.slot >= slots) {
    return InvalidArgument(StrCat(row.name, " waits for engine ", fault.when.slot, " of ", slots),
                           "count engines from 0");
  }
  const bool about_a_slot = row.shape == kSlot || row.shape == kCall;
  if (about_a_slot && fault.target >= slots) {
    return InvalidArgument(StrCat(row.name, " is about engine ", fault.target, " of ", slots), "count engines from 0");
  }
  if (row.shape == kPolicy && fault.target >= plan.policies) {
    return InvalidArgument(StrCat(row.name, " is about policy ", fault.target, " of ", plan.policies),
                           "count policies from 0");
  }
  if (row.shape == kBetween || row.shape == kPair) {
    const bool pair = fault.from.kind == ProcessKind::kPolicy && fault.to.kind == ProcessKind::kAgent;
    if (!IsThere(plan, fault.from) || !IsThere(plan, fault.to) || !IsLink(fault.from, fault.to) ||
        (row.shape == kPair && !pair)) {
      return InvalidArgument(StrCat(row.name, " names a link that is not there"),
                             row.shape == kPair ? "write policy P -> agent E" : "name two processes that talk");
    }
  }
  if (fault.count == 0) {
    return InvalidArgument(StrCat(row.name, " happens 0 times"), "leave the fault out");
  }
  return OkStatus();
}

}  // namespace

std::span<const FaultRow> FaultTable() { return kRows; }
const FaultRow& RowOf(FaultKind kind) { return kRows[static_cast<std::size_t>(kind)]; }
std::string_view ToString(FaultKind kind) { return RowOf(kind).name; }

bool IsLink(const Process& from, const Process& to) {
  using enum ProcessKind;
  const auto between = [&](ProcessKind a, ProcessKind b) {
    return (from.kind == a && to.kind == b) || (from.kind == b && to.kind == a);
  };
  return between(ProcessKind::kController, kAgent) || between(ProcessKind::kController, ProcessKind::kPolicy) ||
         between(ProcessKind::kController, ProcessKind::kRouter) || between(ProcessKind::kPolicy, kAgent);
}

Status CheckPlan(const Plan& plan) {
  const struct {
    std::string_view name;
    std::uint32_t value;
    std::uint32_t low;
    std::uint32_t high;
  } sizes[] = {{"engines", plan.engines, 1, kMostEngines},    {"tp", plan.tp_size, 1, kMostTp},
               {"policies", plan.policies, 1, kMostEngines},  {"tensors", plan.tensors, 1, 1024},
               {"load-bytes", plan.load_bytes, 1, 1U << 20U}, {"requests", plan.requests, 1, 1U << 20U}};
  for (const auto& size : sizes) {
    if (size.value < size.low || size.value > size.high) {
      return InvalidArgument(StrCat(size.name, " is ", size.value), StrCat("take ", size.low, " to ", size.high));
    }
  }
  if (plan.sync_budget <= Duration::zero()) {
    return InvalidArgument("sync-budget is 0", "give every sync some time");
  }
  if (plan.strict && plan.policies < plan.engines * plan.tp_size) {
    return InvalidArgument(
        StrCat("strict with ", plan.policies, " policies for ", plan.engines, " engines of tp ", plan.tp_size),
        "strict needs a policy worker for each of an engine's ranks (RC-CFG-10)");
  }
  if (plan.attached.has_value() &&
      (*plan.attached >= plan.engines || plan.fault_tolerance || plan.family == sync::SessionFamily::kB)) {
    return InvalidArgument(StrCat("attached engine ", *plan.attached, " of ", plan.engines),
                           "count engines from 0, without fault tolerance, of family a or c");
  }
  for (const Fault& fault : plan.faults) {
    REFIT_RETURN_IF_ERROR(CheckFault(plan, fault));
  }
  return OkStatus();
}

}  // namespace refit::sim
