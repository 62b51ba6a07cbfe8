// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A whole fleet in one thread and virtual time: a control::Controller, one peer::EngineAgent with its EngineDouble per
// slot, one peer::PolicyAgent per rank. Effects become events in a queue; when it is empty, time goes to the next
// deadline. What runs in production through runtime/ runs here through the same machines.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "refit/control/controller.h"
#include "refit/peer/engine_agent.h"
#include "refit/peer/policy_agent.h"
#include "tests/support/engine_double.h"

namespace refit::testing {

struct RigOptions {
  sync::Profile profile = sync::kResilient;
  sync::SessionFamily family = sync::SessionFamily::kC;
  std::uint32_t engines = 2;
  std::uint32_t tp_size = 1;
  std::uint32_t policies = 2;
  std::size_t loads = 3;
  std::uint64_t tensors_per_load = 4;
  bool attached = false;
  bool keep_lease = false;
  Duration budget = std::chrono::seconds(60);
};

class FleetRig {
 public:
  explicit FleetRig(RigOptions options);

  // Asks for a sync and runs until it is answered. An answer is always due within its budget.
  control::SyncAnswered Sync(const std::string& request_id = "");
  void Request(const std::string& request_id);  // without running
  void Run();                                   // until nothing is left to do
  void RunUntilQuiet();                         // the queue only; time stands still

  EngineDouble& engine(std::uint32_t slot) { return boxes_.at(SlotIndex(slot)).engine; }
  peer::EngineAgent& agent(std::uint32_t slot) { return *boxes_.at(SlotIndex(slot)).agent; }
  Incarnation incarnation(std::uint32_t slot) { return boxes_.at(SlotIndex(slot)).incarnation; }
  control::Controller& controller() { return *controller_; }
  Instant now() const { return now_; }

  void Launch(std::uint32_t slot);      // a new incarnation, registered
  void Release(std::uint32_t slot);     // both memory tags, as a trainer that shares the device does
  void LoseAgent(std::uint32_t slot);   // unreachable
  void LosePolicy(std::uint32_t rank);  // its process dies: links break
  void JoinPolicy(std::uint32_t rank);  // a new process of that rank
  void Deliver(const control::ControllerEvent& event);

  // Faults and observation points. `before` of a command: return false to drop it.
  std::function<bool(SlotIndex, const sync::AgentCommand&)> on_agent_command;
  std::function<bool(SlotIndex, const sync::AgentReply&)> on_agent_reply;
  std::function<bool(PolicyRank, const sync::PolicyCommand&)> on_policy_command;
  std::function<void(SlotIndex, std::size_t)> on_load;                  // before the update of that load
  std::function<Status(SlotIndex, const sync::StreamSource&)> on_link;  // the answer to a handshake
  Status commit_status;
  bool answer_commit = true;
  bool block_send = false;  // sources do not return
  std::size_t loads_sent_by(std::uint32_t rank) { return policies_.at(PolicyRank(rank)).loads; }
  void SetLoads(std::uint32_t rank, std::size_t loads) { policies_.at(PolicyRank(rank)).loads = loads; }
  void SetDigest(std::uint32_t rank, Digest digest) { policies_.at(PolicyRank(rank)).digest = digest; }
  void SetManifest(std::uint32_t rank, std::shared_ptr<const weights::Manifest> manifest) {
    policies_.at(PolicyRank(rank)).manifest = std::move(manifest);
  }
  bool leased(std::uint32_t rank) { return policies_.at(PolicyRank(rank)).source_open; }
  bool sent_to_nobody(std::uint32_t rank) { return policies_.at(PolicyRank(rank)).drained; }

  const std::vector<std::string>& log() const { return log_; }  // engine calls, "0 pause"
  const std::vector<control::CommitRecord>& commits() const { return commits_; }
  const std::vector<sync::AgentCommand>& commands(std::uint32_t slot) { return sent_[SlotIndex(slot)]; }
  const std::vector<std::pair<SlotIndex, sync::StreamSource>>& opened_links() const { return opened_links_; }
  int closed_links() const { return closed_links_; }
  int exit_code() const { return stopped_; }  // of the controller, once it had to stop
  std::vector<control::SyncAnswered> TakeAnswers() { return std::exchange(answers_, {}); }
  std::vector<std::string> Violations() const;  // of every engine that ever lived, and of the rig's own checks

 private:
  struct AgentBox {
    Incarnation incarnation;
    std::unique_ptr<peer::EngineAgent> agent;
    EngineDouble engine;
    std::optional<peer::StartTransfer> transfer;
    std::size_t next_load = 0;
  };
  struct PolicyBox {
    Incarnation incarnation;
    std::unique_ptr<peer::PolicyAgent> agent;
    std::shared_ptr<const weights::Manifest> manifest;
    std::size_t loads = 0;
    Digest digest;
    std::optional<peer::StartSend> send;
    std::set<SlotIndex> busy;  // receivers that have not ended
    bool source_open = false;
    bool drained = false;
    bool dead = false;
  };

  void Post(std::function<void()> event) { queue_.push_back(std::move(event)); }
  void ToController(const control::ControllerEvent& event);
  void ToAgent(SlotIndex slot, Incarnation incarnation, const peer::EngineAgentEvent& event);
  void ToPolicy(PolicyRank rank, const peer::PolicyAgentEvent& event);
  void CarryOut(const control::ControllerEffects& effects);
  void CarryOut(SlotIndex slot, const peer::EngineAgentEffects& effects);
  void CarryOut(PolicyRank rank, const peer::PolicyAgentEffects& effects);
  void CheckCommit(const control::CommitRecord& commit);
  void Answer(SlotIndex slot, std::uint64_t call, const sync::Answer& answer);
  void Feed(SlotIndex slot);    // the next load, where all its senders are sending
  void Detach(SlotIndex slot);  // its transfer is over, one way or the other
  void EndSendIfDone(PolicyRank rank);
  void NewPolicy(std::uint32_t rank);
  bool Step();

  RigOptions options_;
  Instant now_{std::chrono::seconds(1)};
  std::uint64_t next_life_ = 1;
  std::unique_ptr<control::Controller> controller_;
  std::map<SlotIndex, AgentBox> boxes_;
  std::map<PolicyRank, PolicyBox> policies_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::string> log_;
  std::vector<std::string> violations_;
  std::vector<control::CommitRecord> commits_;
  std::vector<std::pair<SlotIndex, sync::StreamSource>> opened_links_;
  int closed_links_ = 0;
  int stopped_ = 0;
  std::vector<control::SyncAnswered> answers_;
  std::map<SlotIndex, std::vector<sync::AgentCommand>> sent_;
};

}  // namespace refit::testing
