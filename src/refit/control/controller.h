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

#include <chrono>
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
#include "refit/control/slot_action.h"
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
  fleet::RouterOptions router;
  fleet::HealthOptions health;
  fleet::RestartOptions restarts;
  Duration launch_budget{};        // of one launch until the engine is registered
  Duration catch_up_budget{};      // of one catch-up
  Duration append_deadline{};      // of one record; later is as bad as failed
  Duration command_budget{};       // of a command outside a session: abort, hold, kill
  Duration term_check_interval{};  // of CheckTerm, the residual of settled C9; 0: nobody else can take the term
  // Of what a session sends and waits for: see sync::SessionOptions.
  Duration stall_deadline = std::chrono::seconds(30);
  std::uint64_t min_rate = 0;
  Duration rate_window = std::chrono::seconds(5);
  bool redo_safe = false;  // no transport of ours is (RC-SESS-09)
  std::uint64_t seed = 0;  // of the jitter of back-offs
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
  bool died_in_update = false;
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
// What engines hold against what a version must be, every parameter on every rank (RX-SUM-03).
struct HashesCompared {
  struct Engine {
    SlotIndex slot;
    Incarnation incarnation;
    std::optional<Digest> difference;  // of what it holds where that is not what it must be; none: all is equal
  };
  WeightVersion version;
  std::vector<Engine> engines;
};
// The public shutdown: every link of the fleet is closed, once; engines go on as they are (RC-TERM-04, -05).
struct ShutdownRequested {
  std::string request_id;
};
struct SlotRequested {
  std::string request_id;  // empty: nobody waits for the answer
  SlotAction action;
  SlotIndex slot;
  Duration grace{};  // of requests in flight there
};
struct DrainEnded {  // of DrainEngine; OK: no request is in flight there
  SlotIndex slot;
  Incarnation incarnation;
  Status status;
};
struct Appended {
  std::uint64_t append;
  Status status;
};
struct TermChecked {  // of CheckTerm; not sent where the authority could not be read
  Term term;
};
using ControllerEvent = std::variant<AgentRegistered, AgentGone, LaunchFailed, ShutDownEnded, KillEnded, ProbeEnded,
                                     RequestServed, RouterAnswered, PolicyRegistered, PolicyGone, SyncRequested,
                                     SyncCancelled, HashesTaken, HashesCompared, ShutdownRequested, SlotRequested,
                                     DrainEnded, Appended, TermChecked, sync::SessionEvent>;

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
struct ShutdownAnswered {
  std::string request_id;
  Status status;  // RESOURCE_EXHAUSTED busy; else the first link that could not be closed
};
struct SlotAnswered {  // it is done
  std::string request_id;
  // NOT_FOUND no such slot, FAILED_PRECONDITION retired, latched or not possible, RESOURCE_EXHAUSTED something else is
  // being done to it, ABORTED it is removed instead.
  Status status;
};
struct DrainEngine {  // waits until the engine answers no request
  SlotIndex slot;
  Incarnation incarnation;
  Duration budget{};
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
// Reads the authority's term: neither the router nor whoever waits for this controller can tell a superseded one from
// the one that counts, so it has to find out by itself (RX-LEAD-03, settled C9).
struct CheckTerm {};
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
using ControllerEffect = std::variant<sync::SendToAgent, sync::SendToPolicy, Append, SyncAnswered, ShutdownAnswered,
                                      SlotAnswered, DrainEngine, LaunchEngine, ShutDownEngine, KillEngine, ProbeEngine,
                                      CheckTerm, RouterCall, SlotChanged, Stop>;
using ControllerEffects = std::vector<ControllerEffect>;

struct SlotView {
  SlotIndex slot;
  fleet::SlotState state;
  std::optional<Incarnation> incarnation;  // none: nobody registered
  std::uint32_t tp_size = 0;
  std::optional<sync::Residue> residue;
  bool serving = false;   // serves `version`
  WeightVersion version;  // 0: its launch weights
  std::string service;    // "in service", "draining", "drained", "removing", "restarting"
  bool in_service = true;
  std::string last_error;
};

class Controller {
 public:
  // recovered: what the journal of this run says; null for a run that begins.
  explicit Controller(ControllerOptions options, const JournalState* recovered = nullptr);

  void Start(Instant now, ControllerEffects& out);  // once, before any event
  void Handle(const ControllerEvent& event, Instant now, ControllerEffects& out);
  void HandleDeadline(Instant now, ControllerEffects& out);
  Instant next_deadline() const;

  sync::SessionPhase phase() const;  // of the refit or catch-up that runs; kIdle where none does
  WeightVersion committed() const { return committed_; }
  bool stale() const { return stale_; }                            // RC-SYNC-01
  const std::optional<Status>& latch() const { return latch_; }    // RC-TERM-02
  const std::set<SlotIndex>& unbound() const { return unbound_; }  // whose life has no links yet (RC-SYNC-04)
  std::vector<SlotView> slots() const;

 private:
  // What is known of a life when it is given up.
  enum class Death : std::uint8_t {
    kConfirmed,    // its process was reaped
    kUnreachable,  // nobody answers; it may live
    kWanted,       // it can be reached, and is to end
  };
  // Why a command was sent outside a session.
  enum class Errand : std::uint8_t { kFence, kHold, kResume, kActivate, kRelease, kOnload, kUnbind, kKill };
  // A slot is taken out of service, or its engine is replaced, because somebody asked for that.
  struct Leaving {
    SlotAction action = SlotAction::kDrain;
    Duration grace{};
    Instant until = kNever;  // of requests in flight; kNever: it has not begun
    bool asked = false;      // to say when none is in flight
    bool idle = false;
    bool holding = false;
    std::vector<std::string> waiting{};  // its askers
  };
  struct Slot {
    explicit Slot(const fleet::RestartOptions& restarts) : budget(restarts) {}

    fleet::SlotState state = fleet::SlotState::kEmpty;
    Incarnation incarnation;                   // of the life in it, or of the one whose end is awaited
    std::optional<sync::EngineMember> member;  // registered, and not lost
    std::vector<Incarnation> past;             // lives that are over
    CommandSeq next_seq{1};
    std::map<CommandSeq, Errand> errands;
    bool attached = false;
    bool adopting = false;            // what its agent says of itself is not settled yet
    Instant expected_until = kNever;  // a successor waits so long for a life that the journal names
    WeightVersion version;            // that it serves, or served last
    bool in_traffic = false;          // the router may send somebody to that life
    bool spared = false;              // its entry there is left alone until it is heard, or somebody decides without it
    Service service = Service::kIn;
    std::optional<Leaving> leaving;
    bool spare_charge = false;  // its next restart costs nothing: the failure was not its own (RX-QUAR-05)
    Incarnation charged;        // the life whose end was charged last
    std::string last_error;
    std::optional<fleet::KillPath> kill;
    fleet::RestartBudget budget;
    Instant launch_at = kNever;  // when it is launched again, or its kill is tried again
    std::uint64_t launch = 0;
    std::uint32_t catch_ups = 0;  // tried by this life for this version
  };
  struct Worker {
    std::optional<sync::PolicyMember> member;
    Incarnation incarnation;  // of the last one, which may be heard again
    CommandSeq next_seq{1};
  };
  struct Recorded {
    Status status;
    std::optional<sync::Outcome> outcome;
  };
  struct Request {
    std::string id;
    std::string source;
    Instant deadline;
    std::vector<std::string> waiting;  // its askers
    WeightVersion version;             // fixed by the first intent (RX-ONCE-02); 0: not yet
    bool quieting = false;
    bool alive_checked = false;
    bool recovered = false;
  };
  struct Shutdown {
    std::string id;
    Status status;  // the first failure
  };
  struct PendingAppend {
    std::uint64_t append;
    Instant deadline;
  };

  // controller.cc: requests, the journal's gate, the latch.
  void On(const SyncRequested& event, Instant now);
  void On(const SyncCancelled& event, Instant now);
  void On(const Appended& event, Instant now);
  void On(const TermChecked& event, Instant now);
  void On(const sync::SessionEvent& event, Instant now);
  void On(const ShutdownRequested& event, Instant now);
  void GiveBackLeases();
  void EndShutdown();
  void EndRequest(const Status& status, const std::optional<sync::Outcome>& outcome, Instant now);
  void Write(Record record, Instant now);
  void Latch(const Status& status, Instant now);
  void StopActing(int exit_code, const Status& status);
  bool Superseded(Term highest_term);
  void Flush(ControllerEffects& out);

  // controller_sessions.cc: refits and catch-ups.
  void Advance(Instant now);
  void AdvanceRequest(Instant now);
  bool AliveChecked();
  bool Recovered(Instant now);
  bool Quieted(Instant now);
  Status CheckRegistered() const;
  void StartRefit(Instant now);
  void StartCatchUp(Instant now);
  bool MayCatchUp(const Slot& slot) const;
  sync::SessionOptions MakeSession();
  void Forward(const sync::SessionEvent& event, Instant now);
  void CarryOut(sync::SessionEffects effects, Instant now);
  void CarryOut(sync::SessionEffect effect, Instant now);
  void OnCommit(const sync::AppendCommit& commit, Instant now);
  void OnCommitted(Instant now);
  void OnFinished(const sync::Outcome& outcome, Instant now);
  void On(const HashesTaken& event, Instant now);
  void On(const HashesCompared& event, Instant now);

  // controller_service.cc: slots that are added, drained, removed and restarted.
  void On(const SlotRequested& event, Instant now);
  void On(const DrainEnded& event, Instant now);
  Status PutInService(SlotIndex index, Instant now);
  void TakeOut(SlotIndex index, Slot& slot, const SlotRequested& event, Instant now);
  void AdvanceLeaving(Instant now);
  void Drain(SlotIndex index, Slot& slot, Instant now);
  void LeaveWithoutLife(SlotIndex index, Slot& slot, Instant now);
  void OnHeld(SlotIndex index, Slot& slot, Instant now);
  void EndLeaving(Slot& slot, const Status& status);
  static std::string ServiceText(const Slot& slot);

  // controller_fleet.cc: who is here, and what happens to a slot.
  void On(const AgentRegistered& event, Instant now);
  void OnHeardAgain(SlotIndex index, Slot& slot, Instant now);
  void OnLaunched(SlotIndex index, Slot& slot, const sync::EngineMember& member, Instant now);
  void On(const AgentGone& event, Instant now);
  void On(const LaunchFailed& event, Instant now);
  void On(const ShutDownEnded& event, Instant now);
  void On(const KillEnded& event, Instant now);
  void On(const ProbeEnded& event, Instant now);
  void On(const RequestServed& event, Instant now);
  void On(const RouterAnswered& event, Instant now);
  void SendErrand(PolicyRank rank, Worker& worker, sync::PolicyCommandKind kind, WeightVersion version,
                  Duration budget);
  void OnAgentReplied(const sync::AgentReplied& event, Instant now);
  void OnErrandDone(SlotIndex index, Slot& slot, Errand errand, const sync::AgentReply& reply, Instant now);
  void On(const PolicyRegistered& event, Instant now);
  void On(const PolicyGone& event, Instant now);
  void Reconcile(SlotIndex index, Slot& slot, const sync::AgentReply& reply, Instant now);
  void SendErrand(SlotIndex index, Slot& slot, Errand errand, sync::AgentCommandKind kind, WeightVersion version);
  void Enter(SlotIndex index, Slot& slot, fleet::SlotState state, std::string reason = {});
  void EnterServing(SlotIndex index, Slot& slot, Instant now);
  void Lose(SlotIndex index, Incarnation incarnation, const Status& status, Death death, Instant now);
  void Detach(SlotIndex index, Slot& slot, Instant now);
  void StartKill(SlotIndex index, Slot& slot, bool confirmed, Instant now);
  void ConfirmDeath(SlotIndex index, Slot& slot, Instant now);
  void OnDead(SlotIndex index, Slot& slot, bool confirmed, Instant now);
  void LeaveTraffic(SlotIndex index, Slot& slot, Instant now);
  void Reschedule(SlotIndex index, Slot& slot, Instant now);
  void StartRecovery(std::vector<SlotIndex> slots, Instant now);
  fleet::Recovery* RecoveryOf(SlotIndex index);
  void CarryOut(fleet::RecoveryEffects effects, Instant now);
  void RollBack(const fleet::RollBack& back, Instant now);
  void OnRecoveryEnded(const fleet::RecoveryEnded& ended, Instant now);
  void CarryOut(SlotIndex index, fleet::KillPathEffects effects, Instant now);
  void CarryOut(fleet::HealthEffects effects, Instant now);
  void CarryOut(fleet::RouterEffects effects, Instant now);
  void Tick(Instant now);

  ControllerOptions options_;
  Prng prng_;
  std::map<SlotIndex, Slot> slots_;
  std::map<PolicyRank, Worker> policies_;
  std::set<SlotIndex> unbound_;
  fleet::Health health_;
  fleet::RouterRegistry router_;
  std::vector<fleet::Recovery> recoveries_;  // one of every empty slot, or one each (C5)
  std::set<SlotIndex> not_quiet_;            // the monitor has still something in flight there
  std::uint64_t next_launch_ = 1;
  bool succeeds_ = false;  // a controller before this one may still be heard by somebody

  std::optional<sync::Session> session_;
  std::deque<sync::SessionEffect> session_effects_;  // not carried out yet; what one causes comes after the others
  bool carrying_out_ = false;
  std::optional<SlotIndex> catching_up_;  // the session is that slot's
  std::optional<Request> request_;
  std::optional<Shutdown> shutdown_;          // waits until every agent has closed its links
  std::map<std::string, Recorded> recorded_;  // what finished requests got, the newest few
  std::vector<std::string> recorded_order_;
  std::uint32_t attempts_ = 0;
  std::optional<WeightVersion> leased_;  // the version whose leases the last session kept; attempts_ is its attempt
  WeightVersion committed_;
  Digest committed_digest_;
  std::string committed_source_;
  std::map<SlotIndex, CommitMember> members_;  // of the last COMMIT
  std::optional<CommitRecord> deciding_;       // its record is being written
  WeightVersion burned_;
  bool poisoned_ = false;  // engines died of the last update: nobody is given it before the next request (RX-QUAR-08)
  bool stale_ = true;
  std::optional<Status> latch_;
  bool stopped_ = false;
  Instant term_check_at_ = kNever;
  Instant returning_until_ = kNever;  // members tell a successor of themselves; kNever: nobody is waited for

  std::uint64_t next_append_ = 1;
  std::uint64_t last_sent_append_ = 0;
  std::deque<PendingAppend> appends_;                            // not confirmed yet, in order
  std::uint64_t commit_append_ = 0;                              // the record of the session's decision; 0: none yet
  std::optional<OutcomeRecord> owed_;                            // that a controller before this one could not write
  ControllerEffects fresh_;                                      // of the event that is being handled
  std::deque<std::pair<std::uint64_t, ControllerEffect>> held_;  // each behind that append
};

}  // namespace refit::control
