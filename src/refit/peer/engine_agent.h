// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The agent's side of every fence, as a pure machine: it checks each incoming command (run, term, seq, incarnation,
// attempt, phase, digest) and decides every engine call. One per incarnation. runtime/agent_host carries its effects
// out.
//
// Never: makes two engine calls at once; calls an engine after one of its mutating calls went without a complete answer
// (C2) — from then on it only asks for the kill; resumes an engine that may hold a mix.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/sync/command.h"
#include "refit/sync/engine_call.h"
#include "refit/sync/envelope.h"
#include "refit/sync/profile.h"
#include "refit/weights/manifest.h"

namespace refit::peer {

struct EngineAgentOptions {
  SlotIndex slot;
  Incarnation incarnation;
  RunId run;
  Term term_floor;  // read from the authority, never zero (RX-ID-03)
  sync::SessionFamily family = sync::SessionFamily::kA;
  sync::PauseMode pause_mode = sync::PauseMode::kAbort;
  sync::Profile profile;
  std::uint32_t tp_size = 1;
  bool attached = false;  // the engine's history is unknown: `end` before `begin` on family C
  std::shared_ptr<const weights::Manifest> expected;   // what the engine's model loads; null: not known, not checked
  Duration call_deadline{};                            // of one engine call but update
  Duration update_deadline{};                          // of one update call
  Duration flush_retry_interval{};                     // between refused flushes, until the command's budget ends
  Duration stall_deadline = std::chrono::seconds(30);  // a transfer that brings no load for so long has failed
  Duration orphan_deadline{};  // without any controller, an engine that does not serve is ended (RX-JRNL-05); 0: never
};

// Refuses what no engine of that family can do, before anybody is paused (RC-CFG-06: `retract` on family A).
Status CheckEngineAgentOptions(const EngineAgentOptions& options);

// ---- events
struct CommandArrived {
  sync::AgentCommand command;
};
struct EngineAnswered {
  std::uint64_t call;
  sync::Answer answer;
};
struct LoadReady {
  AttemptId attempt;
};  // the receive loop holds one call's worth and waits for PostUpdate
struct TransferEnded {
  AttemptId attempt;
  sync::TransferTotals totals;
};  // all streams ended, every load slot is back
struct TransferFailed {
  AttemptId attempt;
  Status status;
};
struct TransferFenced {
  AttemptId attempt;
};  // answer to StopTransfer (RX-XFER-12)
struct LinkOpened {  // answer to OpenLink: the handshake went through, or why not (RX-BIND-02)
  LinkId link;
  Status status;
};
struct EngineDied {
  Status status;
};
struct ContactLost {};  // no controller can be reached
struct ContactMade {
  Term term;  // of the authority at that time, as the agent read it there: whoever is older is not heard any more
};
using EngineAgentEvent = std::variant<CommandArrived, EngineAnswered, LoadReady, TransferEnded, TransferFailed,
                                      TransferFenced, LinkOpened, EngineDied, ContactLost, ContactMade>;

// ---- effects, in order
struct CallEngine {
  std::uint64_t call;
  sync::Operation operation;  // every operation but update
  WeightVersion version;      // kLabel
  Duration deadline{};
};
struct PostUpdate {  // make the update call of the load that LoadReady announced
  std::uint64_t call;
  AttemptId attempt;
  std::optional<WeightVersion> label;  // profile strict
  Duration deadline{};
};
// Connects to that policy worker and proves the path: a block of random bytes is read over it and compared, and both
// ends compare run, term, incarnations and protocol (RX-BIND-02).
struct OpenLink {
  LinkId link;
  sync::Stamp stamp;  // of the bind
  sync::StreamSource source;
  Duration budget{};
};
struct CloseLink {
  LinkId link;
};
struct StartTransfer {
  sync::Stamp stamp;
  std::vector<sync::StreamSource> streams;
  Duration budget{};
};
struct StopTransfer {
  AttemptId attempt;
};
struct SendReply {
  sync::AgentReply reply;
};
struct KillEngine {
  std::string reason;
};  // the incarnation ends; this machine makes no call any more
using EngineAgentEffect =
    std::variant<CallEngine, PostUpdate, OpenLink, CloseLink, StartTransfer, StopTransfer, SendReply, KillEngine>;
using EngineAgentEffects = std::vector<EngineAgentEffect>;

enum class AgentPhase : std::uint8_t {
  kServing,
  kPreparing,
  kTransferring,
  kEnding,
  kComplete,
  kActivating,
  kHeld,
  kDead
};
std::string_view ToString(AgentPhase phase);

class EngineAgent {
 public:
  explicit EngineAgent(EngineAgentOptions options);

  void Handle(const EngineAgentEvent& event, Instant now, EngineAgentEffects& out);
  void HandleDeadline(Instant now, EngineAgentEffects& out);
  // The next flush retry, the running command's budget, a transfer's stall, or the end of an orphan.
  Instant next_deadline() const;
  bool died_in_update() const { return died_in_update_; }  // RX-QUAR-08
  AgentPhase phase() const { return phase_; }
  const sync::Residue& residue() const { return residue_; }
  AttemptId attempt() const { return attempt_; }
  std::vector<sync::StreamSource> links() const;  // that are bound

 private:
  // How far this attempt has come on the engine. Each step needs the one before.
  enum class Prepared : std::uint8_t { kNothing, kPaused, kFlushed, kReady };
  enum class Transfer : std::uint8_t { kNone, kRunning, kStopping };  // kNone: nothing runs, everything is fenced

  struct Running {
    sync::AgentCommand command;
    Instant deadline;
  };
  struct Outstanding {
    std::uint64_t call;
    sync::Operation operation;
  };

  // engine_agent.cc: the fences, commands and their answers.
  Status CheckFence(const sync::AgentCommand& command) const;
  Status CheckPhase(const sync::AgentCommand& command) const;
  Status CheckAttempt(const sync::AgentCommand& command) const;
  void OnCommand(const sync::AgentCommand& command, Instant now, EngineAgentEffects& out);
  void Start(Instant now, EngineAgentEffects& out);
  void StartAttempt(Instant now, EngineAgentEffects& out);
  void Complete(EngineAgentEffects& out);
  void Finish(sync::ReplyKind kind, Status status, EngineAgentEffects& out);
  void Overtake(EngineAgentEffects& out);
  void AnswerOvertakers(EngineAgentEffects& out);
  bool IsForAnother(const sync::Stamp& stamp) const;
  void Reply(const sync::AgentCommand& command, sync::ReplyKind kind, Status status, EngineAgentEffects& out) const;
  void Kill(const Status& status, EngineAgentEffects& out);
  void OnBudgetSpent(EngineAgentEffects& out);

  // engine_agent_links.cc: bind.
  void StartBind(Instant now, EngineAgentEffects& out);
  void OnLinkOpened(const LinkOpened& event, EngineAgentEffects& out);
  void CloseOpening(EngineAgentEffects& out);
  bool UsesBoundLinks(const sync::AgentCommand& command) const;

  // engine_agent_calls.cc: one engine call at a time, and the transfer.
  void NextCall(Instant now, EngineAgentEffects& out);
  void OnAnswer(const EngineAnswered& event, Instant now, EngineAgentEffects& out);
  void OnRefused(sync::Operation operation, const sync::Answer& answer, Instant now, EngineAgentEffects& out);
  void RefuseFlush(EngineAgentEffects& out);
  void OnUpdateAnswer(const sync::Answer& answer, Instant now, EngineAgentEffects& out);
  void Record(sync::Operation operation);
  void PostNextUpdate(Instant now, EngineAgentEffects& out);
  void StopTransferBecause(Status status, EngineAgentEffects& out);
  void SettleTransfer(Instant now, EngineAgentEffects& out);
  void FailTransfer(EngineAgentEffects& out);
  void Await(Instant now);
  Duration Within(Duration deadline, Instant now) const;
  std::string LoadText(sync::Operation operation) const;  // which load an update was about

  EngineAgentOptions options_;
  AgentPhase phase_ = AgentPhase::kServing;
  sync::Residue residue_ = sync::Residue::Old(WeightVersion(0));
  sync::SessionFamily family_;  // as configured, until `begin` shows another
  sync::EngineFacts facts_;
  bool paused_ = false;
  bool held_ = false;  // answered a HOLD: only ACTIVATE wakes it
  bool pausing_to_hold_ = false;
  bool died_in_update_ = false;

  Term highest_term_;
  CommandSeq highest_seq_;
  AttemptId attempt_;
  WeightVersion version_;  // that the attempt installs
  std::vector<sync::StreamSource> streams_;
  std::map<PolicyRank, sync::StreamSource> links_;  // bound
  std::map<LinkId, sync::StreamSource> opening_;    // by the running bind, not answered yet
  std::vector<sync::StreamSource> opened_links_;    // by the running bind, proved
  LinkId next_link_{1};
  Prepared prepared_ = Prepared::kNothing;

  std::optional<Running> running_;
  std::vector<Running> overtakers_;  // wait for the call or the transfer under way to settle
  Status failure_;                   // why the running command will fail once what is under way has settled
  std::deque<sync::Operation> calls_;
  std::optional<Outstanding> outstanding_;
  std::uint64_t next_call_ = 1;
  bool begin_retried_ = false;
  Instant flush_retry_at_ = kNever;
  std::string flush_refusal_;

  Transfer transfer_ = Transfer::kNone;
  AttemptId transfer_attempt_;
  bool opened_ = false;             // this attempt's first `update` was posted
  std::uint32_t loads_posted_ = 0;  // of the transfer; the last one's number, for messages
  std::uint32_t loads_waiting_ = 0;
  std::optional<sync::TransferTotals> ended_;
  Instant stalled_at_ = kNever;  // of the running transfer, unless something comes; while an update is out: kNever
  Instant orphan_at_ = kNever;
};

}  // namespace refit::peer
