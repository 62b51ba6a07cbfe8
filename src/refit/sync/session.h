// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One sync() as a transaction: lease -> bind -> attempt -> pause … begin -> transfer -> end -> decide -> activate, with
// as many attempts as the profile allows. A catch-up is the same transaction for one engine and a version that is
// committed already. Events in, effects out; no clock, no I/O. A profile is data. After it finished, its outcome says
// what every engine holds.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/prng.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/fleet/slot.h"
#include "refit/sync/command.h"
#include "refit/sync/profile.h"
#include "refit/sync/residue.h"

namespace refit::sync {

struct EngineMember {
  SlotIndex slot;
  Incarnation incarnation;
  std::uint32_t tp_size = 1;
  Residue residue;                    // as last reported
  bool serving = true;                // not paused when the session begins
  AttemptId attempt{};                // that its agent is in
  std::vector<StreamSource> links{};  // that are bound
  bool attached = false;              // somebody else's engine: never killed, never launched again (C17)
};

struct PolicyMember {
  PolicyRank rank;
  Incarnation incarnation;
  std::string address;
  bool retains = false;  // can still read the version that was published last: a source of catch-ups (C13)
};

// Which policy rank feeds each TP rank of each engine (settled D3, RC-TOPO-02, -08): rank i to rollout rank i when
// there are at least as many policy ranks as rollout ranks, else engine k from rank k mod P. Ranks of one engine that
// have the same source share one stream.
std::map<SlotIndex, std::vector<StreamSource>> MapStreams(const std::vector<PolicyMember>& policies,
                                                          const std::vector<EngineMember>& engines);

enum class SessionKind : std::uint8_t {
  kRefit,    // of the fleet, to a version that is not committed
  kCatchUp,  // of one engine, to the version that is (RX-MEM-03)
};

struct SessionOptions {
  SessionKind kind = SessionKind::kRefit;
  Profile profile;
  RunId run;
  AttemptId attempt;                                       // the first one; a retry counts on
  WeightVersion version;                                   // to publish, or to catch up with
  WeightVersion committed;                                 // V-1; of a catch-up: version
  std::optional<Digest> digest;                            // of a catch-up: what the version means
  std::string source;                                      // for kLease; empty: each worker's default
  Instant deadline;                                        // of the whole sync
  std::vector<EngineMember> engines;                       // by slot
  std::vector<std::pair<SlotIndex, Incarnation>> outside;  // lives that take no part and may still be in traffic
  std::vector<PolicyMember> policies;                      // by rank
  std::map<SlotIndex, CommandSeq> next_seq;                // first seq to use per agent; none: 1
  std::map<PolicyRank, CommandSeq> next_policy_seq;        // the same per policy worker
  bool keep_lease = false;  // verify: always — the lease is given back by whoever verified
  // Of a command that waits for nobody else: how long it may take. A transfer is judged by its progress (RX-TIME-02).
  Duration stall_deadline = std::chrono::seconds(30);
  std::uint64_t min_rate = 0;  // bytes per second; an engine that gets less in three windows is slow; 0: not judged
  Duration rate_window = std::chrono::seconds(5);
  bool redo_safe = false;  // an interrupted transfer can simply be repeated by the next sync (RC-SESS-09)
  std::uint64_t seed = 0;  // of the jitter of back-offs
};

// ---- events
struct Started {};
struct AgentReplied {
  SlotIndex slot;
  AgentReply reply;
};
struct AgentLost {  // unreachable, or its engine died
  SlotIndex slot;
  Incarnation incarnation;
  Status status;
  bool died_in_update = false;  // as in its reply, which this may overtake
};
// It can answer nobody any more: its death is confirmed, or the router was seen without it (RX-COMMIT-03).
struct OutOfTraffic {
  SlotIndex slot;
  Incarnation incarnation;
};
// How much of the running transfer an engine has installed by now, as it says when asked.
struct Delivered {
  SlotIndex slot;
  Incarnation incarnation;
  ByteCount bytes = 0;
};
struct PolicyReplied {
  PolicyRank rank;
  PolicyReply reply;
};
struct PolicyLost {
  PolicyRank rank;
  Status status;
};
struct CommitAppended {
  Status status;
};  // answer to AppendCommit
struct Cancelled {
  Status status;
};
using SessionEvent = std::variant<Started, AgentReplied, AgentLost, OutOfTraffic, Delivered, PolicyReplied, PolicyLost,
                                  CommitAppended, Cancelled>;

// ---- effects, to be carried out in order
struct SendToAgent {
  SlotIndex slot;
  AgentCommand command;
};
struct SendToPolicy {
  PolicyRank rank;
  PolicyCommand command;
};
// decide: from here on V is published, of a catch-up: its engine may be activated. Members are those that hold it
// (RX-COMMIT-01, -02).
struct Member {
  SlotIndex slot;
  Incarnation incarnation;
  AttemptId attempt;
};
struct AppendCommit {
  WeightVersion version;
  Digest digest;
  std::vector<Member> members;
  std::vector<std::pair<SlotIndex, std::string>> excluded;  // with the reason
};
// An attempt is over and fenced; the next one follows (contract §II.4).
struct AttemptAborted {
  AttemptId attempt;
  AttemptId next;
  Status status;
  bool opened = false;
};
// That life is over: out of the router, killed, its slot launched anew (RX-QUAR-03). The session sends it nothing more
// and waits for OutOfTraffic before it decides without that engine.
struct Quarantine {
  SlotIndex slot;
  Incarnation incarnation;
  std::string reason;
};
// Where an engine of this session has come (fleet/slot.h), for whoever keeps the slots.
struct SlotMoved {
  SlotIndex slot;
  fleet::SlotState state;
};
// The links of an engine were proved; from here on they are its links (RC-SYNC-04).
struct Bound {
  SlotIndex slot;
  std::vector<StreamSource> links;
};
struct EngineOutcome {
  SlotIndex slot;
  Incarnation incarnation;
  Status status;  // OK: serves the outcome's version
  Residue residue;
  bool serving = false;
  bool killed = false;
  TransferTotals totals;
  Instant pause_sent{};  // stall_seconds = resume_answered - pause_sent (D11); zero: never paused
  Instant resume_answered{};
};
struct Outcome {
  Status status;          // OK: the version was published
  WeightVersion version;  // the version that was to be published
  bool committed = false;
  bool latch = false;     // terminal for this run (profile strict)
  bool opened = false;    // some engine had its first `update`: the number is burned unless committed (RX-ONCE-02)
  bool systemic = false;  // most engines failed alike: nobody is charged (RX-QUAR-05)
  bool deaths_in_update = false;  // two engines died of it: no further engine is given it in this request (RX-QUAR-08)
  bool insufficient = false;      // too few engines were left, through no fault of those
  bool in_doubt = false;          // the commit was not confirmed by the deadline (RX-COMMIT-10)
  AttemptId attempt;              // the last one
  Digest digest;
  TransferTotals published;  // once, from the senders
  std::vector<EngineOutcome> engines;
  std::vector<std::string> notes;  // secondary errors, never in place of the primary one (RC-SESS-10)
};
struct Finished {
  Outcome outcome;
};
using SessionEffect =
    std::variant<SendToAgent, SendToPolicy, AppendCommit, AttemptAborted, Quarantine, SlotMoved, Bound, Finished>;
using SessionEffects = std::vector<SessionEffect>;

enum class SessionPhase : std::uint8_t {
  kIdle,
  kLeasing,
  kAttempting,
  kPreparing,  // onload(weights), pause, flush, begin
  kTransferring,
  kEnding,
  kFencing,  // an attempt that failed: everybody stops and says so, then the next one begins
  kDeciding,
  kActivating,
  kUndoing,  // a failure before the first update: engines back to V-1; after it: abort and fence
  kFinished,
};
std::string_view ToString(SessionPhase phase);

class Session {
 public:
  explicit Session(SessionOptions options);

  void Handle(const SessionEvent& event, Instant now, SessionEffects& out);
  void HandleDeadline(Instant now, SessionEffects& out);
  Instant next_deadline() const;
  SessionPhase phase() const { return phase_; }

 private:
  // Where the failures of one step are ordered: policy workers before engines, then by number (RC-RPC-05).
  static constexpr std::uint32_t kNobody = 0;
  static constexpr std::uint32_t kFirstPolicy = 1;
  static constexpr std::uint32_t kFirstEngine = 1U << 16;
  static constexpr std::uint32_t kDeathsInUpdate = 2;  // RX-QUAR-08

  template <typename Kind>
  struct Sent {
    Kind kind;
    AttemptId attempt;
  };
  struct Engine {
    EngineMember member;
    std::vector<StreamSource> streams;  // with their links, once bound
    CommandSeq next_seq;
    std::size_t step = 0;                                      // of Envelope(): the next one
    std::map<CommandSeq, Sent<AgentCommandKind>> outstanding;  // one, and what overtook it
    EngineOutcome outcome;              // status: its first failure; from then on it is no member
    std::optional<AttemptId> complete;  // the attempt whose version it holds
    std::optional<std::pair<AgentCommandKind, StatusCode>> failed_at;  // in this attempt
    std::uint32_t bind_tries = 0;
    Instant not_before{};             // a retry waits for its back-off (RX-TIME-03)
    Instant window_start = kNever;    // of the window in which its rate is measured; kNever: none yet
    ByteCount window_bytes = 0;       // delivered when that began
    std::uint32_t slow_windows = 0;   // in a row
    std::uint32_t link_failures = 0;  // attempts that its link ended although both ends live
    bool suspect = false;             // to be quarantined, unless most failed alike
    bool gone = false;                // lost or quarantined: no command reaches it
    bool out = false;                 // of traffic, confirmed (RX-COMMIT-03)
    bool hold_sent = false;
    bool abort_sent = false;
    bool resume_sent = false;
    bool activated_twice = false;
  };
  struct Policy {
    PolicyMember member;
    CommandSeq next_seq;
    std::map<CommandSeq, Sent<PolicyCommandKind>> outstanding;
    std::shared_ptr<const weights::Manifest> manifest;
    std::vector<Receiver> receivers;  // of this attempt
    bool leased = false;
    bool sent = false;  // in this attempt
    bool abort_sent = false;
    bool gone = false;
    Digest digest;
    TransferTotals totals;
    // Whether it published to anyone: not where it had no receiver, or where all of them left and it drained.
    bool delivered() const { return !receivers.empty() && totals.tensors > 0; }
  };

  // session.cc: events, the end.
  void OnStarted(Instant now, SessionEffects& out);
  void OnAgentReplied(const AgentReplied& event, Instant now, SessionEffects& out);
  void OnAgentDone(Engine& engine, AgentCommandKind kind, const AgentReply& reply, Instant now, SessionEffects& out);
  void OnPolicyReplied(const PolicyReplied& event);
  void OnPolicyLost(const PolicyLost& event);
  void OnDeadline(Instant now, SessionEffects& out);
  void Fail(const Status& status, std::uint32_t place);
  bool Latches() const;
  void Finish(const Status& status, Instant now, SessionEffects& out);
  std::string WaitingFor() const;
  Engine* Find(SlotIndex slot, Incarnation incarnation);

  // session_failures.cc: what becomes of engines that fail, are lost, or are slow.
  void OnAgentFailed(Engine& engine, AgentCommandKind kind, const AgentReply& reply, Instant now, SessionEffects& out);
  void OnBindFailed(Engine& engine, const Status& status, Instant now);
  void OnAgentLost(const AgentLost& event, SessionEffects& out);
  void OnDelivered(const Delivered& event, Instant now, SessionEffects& out);
  void CountDeath(bool in_update);
  void Lose(Engine& engine, AgentCommandKind during, const Status& status, SessionEffects& out);
  void FailEngine(Engine& engine, AgentCommandKind during, const Status& status);
  void FailAttempt(const Status& status);
  bool FailedAlike() const;
  void LoseSuspects(SessionEffects& out);
  bool MayRetry();
  Duration NextBackoff(std::uint32_t retry);
  static bool IsOfTheWay(const Status& status);

  // session_steps.cc: what to send next.
  void Advance(Instant now, SessionEffects& out);
  void AdvanceLeasing(Instant now, SessionEffects& out);
  void StartAttempt(Instant now, SessionEffects& out);
  void AdvanceEnvelope(Instant now, SessionEffects& out);
  bool DispatchSteps(Instant now, SessionEffects& out);
  void DispatchTransfer(Instant now, SessionEffects& out);
  static bool TakeBoundLinks(Engine& engine);
  bool SenderFailsOthers(const Engine& engine) const;
  bool Equivocates() const;
  void AdvanceFencing(Instant now, SessionEffects& out);
  bool AbortEverybody(Instant now, SessionEffects& out);
  void NextAttempt(Instant now, SessionEffects& out);
  void AdvanceDeciding(Instant now, SessionEffects& out);
  bool KeepOutOfTraffic(Instant now, SessionEffects& out);
  void AdvanceActivating(Instant now, SessionEffects& out);
  void AdvanceUndoing(Instant now, SessionEffects& out);
  bool MayResumeOld(const Engine& engine) const;
  Status Verify() const;
  Status VerifyCounts(const Engine& engine) const;
  bool AllSent() const;
  std::optional<Digest> SentRoot() const;
  std::size_t MembersNeeded() const;
  std::vector<Member> Members() const;
  void MoveTo(const Engine& engine, fleet::SlotState state, SessionEffects& out) const;
  Stamp MakeStamp(Incarnation incarnation, AttemptId attempt, CommandSeq& next_seq) const;
  void Send(Engine& engine, AgentCommandKind kind, Instant now, SessionEffects& out);
  void Send(Policy& policy, PolicyCommandKind kind, Instant now, SessionEffects& out);
  Instant BudgetEnd(AgentCommandKind kind, Instant now) const;

  SessionOptions options_;  // attempt: the current one
  SessionPhase phase_ = SessionPhase::kIdle;
  std::vector<Engine> engines_;       // by slot
  std::vector<Policy> policies_;      // by rank
  std::uint32_t attempts_ = 0;        // begun
  Instant prepare_deadline_{};        // of steps before the transfer: one engine's flush must not eat the whole budget
  Instant work_deadline_{};           // what remains until the deadline is for undoing
  Instant next_attempt_at_ = kNever;  // after its back-off
  Prng prng_;
  std::uint32_t retries_ = 0;      // of single commands
  Digest digest_;                  // root of what the senders sent
  std::optional<Digest> root_;     // of the first attempt that every sender completed, or of the committed version
  std::optional<Status> failure_;  // primary; its place decides between those of one step
  std::uint32_t failure_place_ = 0;
  std::optional<Status> attempt_failure_;  // of the current attempt alone
  std::uint32_t deaths_in_update_ = 0;
  bool transfer_started_ = false;  // in any attempt
  bool in_transfer_ = false;       // in this one
  bool opened_ = false;            // in any attempt: some engine may have had its first `update`
  bool equivocated_ = false;
  bool bind_failed_ = false;
  bool systemic_ = false;
  bool insufficient_ = false;
  bool append_sent_ = false;
  bool committed_ = false;
  std::vector<std::string> notes_;
};

}  // namespace refit::sync
