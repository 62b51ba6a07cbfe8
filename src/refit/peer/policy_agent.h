// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The policy worker's side of every fence, as a pure machine: lease, send, abort, release. runtime/policy_host carries
// its effects out: opens the source, packs, announces.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/sync/command.h"
#include "refit/weights/manifest.h"

namespace refit::peer {

struct PolicyAgentOptions {
  PolicyRank rank;
  Incarnation incarnation;
  RunId run;
  Term term_floor;
};

// ---- events
struct PolicyCommandArrived {
  sync::PolicyCommand command;
};
struct SourceOpened {
  AttemptId attempt;
  Status status;
  std::shared_ptr<const weights::Manifest> manifest;
};
struct SendEnded {
  AttemptId attempt;
  Status status;
  Digest digest;
  sync::TransferTotals totals;
};  // iterated to the end
using PolicyAgentEvent = std::variant<PolicyCommandArrived, SourceOpened, SendEnded>;

// ---- effects
struct OpenSource {
  AttemptId attempt;
  std::string source;
};
struct StartSend {
  sync::Stamp stamp;
  std::vector<sync::Receiver> receivers;
  Duration budget{};
};
struct StopSend {
  AttemptId attempt;
};  // stop sending, iterate to the end, then SendEnded (RX-XFER-13)
struct CloseSource {};
struct SendPolicyReply {
  sync::PolicyReply reply;
};
using PolicyAgentEffect = std::variant<OpenSource, StartSend, StopSend, CloseSource, SendPolicyReply>;
using PolicyAgentEffects = std::vector<PolicyAgentEffect>;

enum class PolicyPhase : std::uint8_t { kIdle, kOpening, kLeased, kSending };
std::string_view ToString(PolicyPhase phase);

class PolicyAgent {
 public:
  explicit PolicyAgent(PolicyAgentOptions options);

  void Handle(const PolicyAgentEvent& event, Instant now, PolicyAgentEffects& out);
  void HandleDeadline(Instant now, PolicyAgentEffects& out);
  Instant next_deadline() const;
  PolicyPhase phase() const { return phase_; }

 private:
  struct Running {
    sync::PolicyCommand command;
    Instant deadline;
  };

  Status CheckFence(const sync::PolicyCommand& command) const;
  void OnCommand(const sync::PolicyCommand& command, Instant now, PolicyAgentEffects& out);
  void OnBusyCommand(const sync::PolicyCommand& command, Instant now, PolicyAgentEffects& out);
  void OnOpened(const SourceOpened& event, PolicyAgentEffects& out);
  void OnEnded(const SendEnded& event, PolicyAgentEffects& out);
  void Close(PolicyAgentEffects& out);
  void Stop(PolicyAgentEffects& out);
  void AnswerWaiting(PolicyAgentEffects& out);
  void Reply(const sync::PolicyCommand& command, sync::ReplyKind kind, Status status, PolicyAgentEffects& out) const;

  PolicyAgentOptions options_;
  PolicyPhase phase_ = PolicyPhase::kIdle;
  Term highest_term_;
  CommandSeq highest_seq_;
  AttemptId attempt_;
  std::optional<Running> running_;  // the lease or send under way; none where it was answered `source blocked`
  std::vector<Running> waiting_;    // abort, release: answered when the source has returned
  bool stopping_ = false;
  bool close_on_return_ = false;
};

}  // namespace refit::peer
