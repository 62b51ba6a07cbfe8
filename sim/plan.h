// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One run as data: a fleet, what is asked of it, and what goes wrong when. A plan is drawn from a seed or read from a
// scenario; a failing one is shrunk by leaving faults out. The same plan always gives the same trace.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/sync/command.h"
#include "refit/sync/engine_call.h"

namespace refit::sim {

enum class FaultKind : std::uint8_t {
  // processes; target: a slot, a rank, or nothing
  kKillEngine,    // kill -9 of the engine's server
  kKillAgent,     // its engine dies with it
  kFreezeEngine,  // it answers nothing until the end of the fault
  kFreezeAgent,
  kKillPolicy,
  kBlockSource,       // the weights' iterator does not return
  kKillController,    // a successor starts
  kFreezeController,  // a successor starts meanwhile; the old one resumes
  kSecondController,  // started although the first one lives
  // calls; target: a slot; operation: which engine call
  kRefuseCall,  // an explicit refusal
  kLoseAnswer,  // it ran, nobody hears of it
  kLoseCall,    // it did not run, nobody hears of it
  kDieInCall,
  kNeverHealthy,  // answers liveness, fails every generation
  kFailProbe,     // answers after T
  kFailLaunch,
  kKillUnconfirmed,  // the next hard kill cannot be confirmed
  // links; from one process to another, in that direction
  kPartition,
  kSlow,       // everything on the link takes `by` longer
  kDuplicate,  // `by` later
  kReorder,    // held back by `by`
  kDrop,       // one message of the link
  kCutData,    // the data path of a pair, policy to agent, while control is fine; so the next three
  kFlipBit,    // in one piece or load
  kLateRead,   // a read of an abandoned attempt lands late; its cancel was refused
  kFailBind,
  // disk and router
  kFailAppend,
  kLateAppend,
  kLoseRouter,    // answers nothing
  kForgetRouter,  // restarts empty
  kForeignEntry,  // somebody writes to the router
  // people
  kCancelSync,
  kRepeatRequest,  // the answer is lost, the caller asks again
  kConcurrentSync,
  kChangeWeights,  // the trainer steps between two attempts
  kAddSlot,
  kRemoveSlot,
  // addresses; target: a slot. Last, as what is drawn is drawn in this order.
  kMirror,       // another agent gets a copy of a command: it has an address that was the other's once
  kStaleLookup,  // it registers with the controller before, where that one lives
  kCount
};

enum class ProcessKind : std::uint8_t { kController, kAgent, kPolicy, kRouter, kEngine };
struct Process {
  ProcessKind kind = ProcessKind::kController;
  std::uint32_t index = 0;
  friend bool operator==(const Process&, const Process&) = default;
};

// When: at an instant; or `at` after a command of that kind was sent to that agent for the `skip`+1-th time.
struct Trigger {
  Duration at{};
  std::optional<sync::AgentCommandKind> command{};
  std::uint32_t slot = 0;
  std::uint32_t skip = 0;
  friend bool operator==(const Trigger&, const Trigger&) = default;
};

struct Fault {
  FaultKind kind = FaultKind::kKillEngine;
  Trigger when{};
  std::uint32_t target = 0;                    // a slot or a rank
  std::optional<sync::Operation> operation{};  // of kinds about calls; none: whichever comes next
  Process from{};                              // of kinds about links
  Process to{};
  Duration by{};            // of kSlow, kDuplicate, kReorder
  Duration lasts{};         // zero: for ever, or once
  std::uint32_t count = 1;  // calls, messages
  friend bool operator==(const Fault&, const Fault&) = default;
};

struct Plan {
  std::uint64_t seed = 0;  // of delays, of everything that is not written here
  bool strict = false;
  sync::SessionFamily family = sync::SessionFamily::kC;
  bool fault_tolerance = true;
  bool router = true;
  bool link = false;                        // pieces over a link instead of loads mapped in place
  std::optional<std::uint32_t> attached{};  // a slot whose engine is somebody else's; without fault tolerance
  std::uint32_t engines = 2;
  std::uint32_t tp_size = 1;
  std::uint32_t policies = 1;
  std::uint32_t tensors = 6;
  std::uint32_t load_bytes = 64;                        // with a link: of a piece
  std::uint32_t requests = 4;                           // under faults; one more follows after healing
  Duration request_interval = std::chrono::seconds(1);  // between the answer of one and the next
  Duration sync_budget = std::chrono::seconds(60);
  std::vector<Fault> faults{};
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Faults of many kinds are rarely survived together, so each seed draws from a few (swarm testing).
Plan DrawPlan(std::uint64_t seed);
// The same fleet with faults of these kinds only, and at least one.
Plan DrawPlanOf(std::uint64_t seed, const std::vector<FaultKind>& kinds);

// OK where a configuration would be accepted and every fault names somebody who is there.
Status CheckPlan(const Plan& plan);

// As a scenario has it: one line per setting and fault. Parse says which line it does not understand.
std::string ToText(const Plan& plan);
Result<Plan> ParsePlan(std::string_view text);
// Of a scenario's text what stands above the line `---`.
inline std::string_view PlanOf(std::string_view text) { return text.substr(0, text.find("\n---\n")); }
// The same, over what the plan has already, and without CheckPlan.
Status ReadInto(std::string_view text, Plan& plan);

}  // namespace refit::sim
