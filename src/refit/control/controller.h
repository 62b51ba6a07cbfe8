// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The controller as one machine: who is registered, which version is published, what every slot is doing, the latch,
// and the journal that a successor reads. It owns at most one sync::Session, a refit or a catch-up, and arbitrates
// around it (RC-SYNC-*, RX-ONCE-*, RX-QUAR-*, RX-MEM-*).
//
// Journal before send: an effect that stands behind an Append is not emitted before Appended has confirmed it. A failed
// or late append of a record that must be durable is ambiguous; the machine then emits Stop and nothing more
// (RX-JRNL-03).

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/control/journal.h"
#include "refit/fleet/health.h"
#include "refit/fleet/kill_path.h"
#include "refit/fleet/recovery.h"
#include "refit/fleet/restart_budget.h"
#include "refit/fleet/router_registry.h"
#include "refit/fleet/slot.h"
#include "refit/sync/session.h"

namespace refit::control {

struct ControllerOptions {
  RunId run;
  Term term;  // of this controller, taken from the authority (RX-LEAD-01)
  sync::Profile profile;
  std::vector<SlotIndex> slots;          // that the configuration names
  std::vector<PolicyRank> policy_ranks;  // that the configuration names
  bool keep_lease = false;               // verify: always
  // Probing, killing and launching engines (RC-CFG-13). Off: agents look after their engines themselves, and a life
  // that ends is gone.
  bool use_fault_tolerance = false;
  bool use_router = false;     // off: nobody is sent to engines by us, so nobody has to be kept away
  bool needs_offload = false;  // a launched engine releases its memory and takes its weights' back (RC-REC-03)
  fleet::HealthOptions health;
  fleet::RestartOptions restarts;
  Duration launch_budget{};    // of one launch until the engine is registered
  Duration catch_up_budget{};  // of one catch-up
  Duration append_deadline{};  // of one record; later is as bad as failed
  Duration command_budget{};   // of a command outside a session: abort, hold, kill
  std::uint64_t seed = 0;      // of the jitter of back-offs
};

// ---- events
// A life registers: the first time, or again with this controller. What its agent says of itself goes before anything
// that was written down (RX-JRNL-04).
struct AgentRegistered {
  sync::EngineMember member;
};
struct AgentGone {
  SlotIndex slot;
  Incarnation incarnation;
  Status status;
  bool confirmed_dead = false;  // the process was reaped; else it may still answer somebody
};
struct LaunchFailed {
  SlotIndex slot;
  std::uint64_t launch;
  Status status;
};
struct ShutDownEnded {  // of ShutDownEngine, however it ended
  SlotIndex slot;
  Incarnation incarnation;
};
struct KillEnded {  // of KillEngine
  SlotIndex slot;
  Incarnation incarnation;
  bool confirmed = false;
};
struct ProbeEnded {
  SlotIndex slot;
  Incarnation incarnation;
  std::uint64_t probe;
  Status status;
};
struct RequestServed {  // what real requests saw of an engine (RX-QUAR-06)
  SlotIndex slot;
  Incarnation incarnation;
  bool succeeded = false;
};
struct RouterAnswered {
  std::uint64_t call;
  Status status;
  std::vector<fleet::RouterEntry> entries;  // of RouterCall list
};
struct PolicyRegistered {
  sync::PolicyMember member;
};
struct PolicyGone {
  PolicyRank rank;
  Incarnation incarnation;
  Status status;
};
struct SyncRequested {
  std::string request_id;
  std::string source;
  Duration budget{};
};
struct SyncCancelled {
  std::string request_id;
};
// verify: always — what the leases of the last success were kept for is done; the policy workers get them back (D8).
struct HashesTaken {};
struct SlotAdded {  // RX-MEM-01, between refits
  SlotIndex slot;
};
struct SlotRemoved {  // drained, then shut down (RX-MEM-04)
  SlotIndex slot;
};
struct Appended {
  std::uint64_t append;
  Status status;
};
using ControllerEvent = std::variant<AgentRegistered, AgentGone, LaunchFailed, ShutDownEnded, KillEnded, ProbeEnded,
                                     RequestServed, RouterAnswered, PolicyRegistered, PolicyGone, SyncRequested,
                                     SyncCancelled, HashesTaken, SlotAdded, SlotRemoved, Appended, sync::SessionEvent>;

// ---- effects
struct Append {
  std::uint64_t append;
  Record record;
};
struct SyncAnswered {  // refused at once (busy, latched, somebody missing), or finished
  std::string request_id;
  // Without an outcome: FAILED_PRECONDITION latched ("terminal: …"), RESOURCE_EXHAUSTED busy, UNAVAILABLE somebody
  // missing, or what a controller before this one recorded.
  Status status;
  std::optional<sync::Outcome> outcome;  // none where it was refused
};
struct LaunchEngine {
  SlotIndex slot;
  std::uint64_t launch;  // answered by AgentRegistered or LaunchFailed
  Duration budget{};
};
struct ShutDownEngine {  // gracefully, the whole tree of the server's processes (RC-KILL-01, -02)
  SlotIndex slot;
  Incarnation incarnation;
  Duration deadline{};
};
struct KillEngine {  // whatever it takes; works where nothing was launched
  SlotIndex slot;
  Incarnation incarnation;
};
struct ProbeEngine {
  SlotIndex slot;
  Incarnation incarnation;
  std::uint64_t probe;
  Duration timeout{};
};
struct RouterCall {
  std::uint64_t call;
  fleet::RouterAction action;
  Duration deadline{};
};
struct SlotChanged {  // for logs, metrics and whoever counts arrows
  SlotIndex slot;
  Incarnation incarnation;
  fleet::SlotArrow arrow;
  std::string reason;
};
inline constexpr int kExitJournalInDoubt = 5;
inline constexpr int kExitSuperseded = 6;
struct Stop {  // this controller may not act any more; its process ends
  int exit_code;
  Status status;
};
using ControllerEffect = std::variant<sync::SendToAgent, sync::SendToPolicy, Append, SyncAnswered, LaunchEngine,
                                      ShutDownEngine, KillEngine, ProbeEngine, RouterCall, SlotChanged, Stop>;
using ControllerEffects = std::vector<ControllerEffect>;

struct SlotView {
  SlotIndex slot;
  fleet::SlotState state;
  std::optional<Incarnation> incarnation;  // none: nobody registered
  std::uint32_t tp_size = 0;
  std::optional<sync::Residue> residue;
  bool serving = false;   // serves `version`
  WeightVersion version;  // 0: its launch weights
  std::string last_error;
};
