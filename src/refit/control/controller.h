// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The controller as one machine: who is registered, which version is published, whether a sync runs, the latch.
// It owns at most one sync::Session and arbitrates around it (RC-SYNC-*, RX-ONCE-02).

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/sync/session.h"

namespace refit::control {

struct ControllerOptions {
  RunId run;
  Term term;
  sync::Profile profile;
  std::vector<SlotIndex> slots;          // that the configuration names
  std::vector<PolicyRank> policy_ranks;  // that the configuration names
  bool keep_lease = false;               // verify: always
};

// ---- events
struct AgentRegistered {
  sync::EngineMember member;
};  // a new incarnation replaces the slot's old one
struct AgentGone {
  SlotIndex slot;
  Incarnation incarnation;
  Status status;
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
// verify: always — what the leases of the last success were kept for is done; the policy workers get them back (D8).
struct HashesTaken {};
using ControllerEvent = std::variant<AgentRegistered, AgentGone, PolicyRegistered, PolicyGone, SyncRequested,
                                     HashesTaken, sync::SessionEvent>;

// ---- effects
struct SyncAnswered {  // refused at once (busy, latched, somebody missing), or finished
  std::string request_id;
  // Without an outcome: FAILED_PRECONDITION latched ("terminal: …"), RESOURCE_EXHAUSTED busy, UNAVAILABLE somebody
  // missing.
  Status status;
  std::optional<sync::Outcome> outcome;  // none where it was refused
};
using ControllerEffect = std::variant<sync::SendToAgent, sync::SendToPolicy, sync::AppendCommit, SyncAnswered>;
using ControllerEffects = std::vector<ControllerEffect>;

struct SlotView {
  SlotIndex slot;
  std::optional<Incarnation> incarnation;  // none: nobody registered
  std::uint32_t tp_size = 0;
  std::optional<sync::Residue> residue;
  bool serving = false;   // serves `version`
  WeightVersion version;  // 0: its launch weights
  std::string last_error;
};

class Controller {
 public:
  explicit Controller(ControllerOptions options);

  void Handle(const ControllerEvent& event, Instant now, ControllerEffects& out);
  void HandleDeadline(Instant now, ControllerEffects& out);
  Instant next_deadline() const;

  sync::SessionPhase phase() const;  // kIdle where no sync runs
  WeightVersion committed() const { return committed_; }
  bool stale() const { return stale_; }                          // RC-SYNC-01
  const std::optional<Status>& latch() const { return latch_; }  // RC-TERM-02
  std::vector<SlotView> slots() const;

 private:
  struct Slot {
    std::optional<sync::EngineMember> member;
    CommandSeq next_seq{1};
    WeightVersion version;  // that it serves, or served last
    std::string last_error;
  };
  struct Worker {
    std::optional<sync::PolicyMember> member;
    CommandSeq next_seq{1};
  };
  struct Recorded {
    Status status;
    sync::Outcome outcome;
  };

  void OnAgentRegistered(const sync::EngineMember& member, Instant now, ControllerEffects& out);
  void OnAgentGone(const AgentGone& event, Instant now, ControllerEffects& out);
  void OnPolicyRegistered(const sync::PolicyMember& member, Instant now, ControllerEffects& out);
  void OnPolicyGone(const PolicyGone& event, Instant now, ControllerEffects& out);
  void OnSyncRequested(const SyncRequested& event, Instant now, ControllerEffects& out);
  Status CheckRegistered() const;
  void StartSession(const SyncRequested& event, Instant now, ControllerEffects& out);
  void Forward(const sync::SessionEvent& event, Instant now, ControllerEffects& out);
  void CarryOut(sync::SessionEffects effects, ControllerEffects& out);
  void OnFinished(const sync::Outcome& outcome, ControllerEffects& out);
  void ReturnLeases(ControllerEffects& out);

  ControllerOptions options_;
  std::map<SlotIndex, Slot> slots_;
  std::map<PolicyRank, Worker> policies_;
  std::optional<sync::Session> session_;
  std::vector<std::string> waiting_;          // request ids of the running sync
  std::map<std::string, Recorded> recorded_;  // what finished requests got, the newest few
  std::vector<std::string> recorded_order_;
  std::uint32_t attempts_ = 0;
  std::optional<WeightVersion> leased_;  // the version whose leases the last session kept; attempts_ is its attempt
  WeightVersion committed_;
  WeightVersion burned_;
  bool stale_ = true;
  std::optional<Status> latch_;
};

}  // namespace refit::control
