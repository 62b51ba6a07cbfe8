// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A whole fleet in one thread and virtual time: a control::Controller, one peer::EngineAgent with its EngineDouble per
// slot, one peer::PolicyAgent per rank, a journal, a router. Effects become events in a queue; when it is empty, time
// goes to the next deadline. What runs in production through runtime/ runs here through the same machines. fleet_rig.cc
// carries agents and policy workers, fleet_world.cc what stands around the controller: journal, router, launches.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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
  bool retains = false;  // policy workers can still read what was published last
  Duration budget = std::chrono::seconds(60);
  bool use_fault_tolerance = false;  // probes each second, T 2 s, grace 3 s; 3 restarts per slot, back-off from 1 s
  bool use_router = false;
  bool needs_offload = false;
  Duration catch_up_budget{};
  std::uint64_t min_rate = 0;  // bytes per second, in windows of 5 s
  bool redo_safe = false;
  Duration append_deadline = std::chrono::seconds(600);
};

class FleetRig {
 public:
  explicit FleetRig(RigOptions options);

  // Asks for a sync and runs until it is answered. An answer is always due within its budget.
  control::SyncAnswered Sync(const std::string& request_id = "");
  void Request(const std::string& request_id);  // without running
  void Run();  // until nothing is left to do; where a monitor or a router goes on: until all are answered
  void RunFor(Duration time);
  bool RunUntil(const std::function<bool()>& holds);  // within a minute; whether it does
  void RunUntilQuiet();                               // the queue only; time stands still

  EngineDouble& engine(std::uint32_t slot) { return boxes_.at(SlotIndex(slot)).engine; }
  peer::EngineAgent& agent(std::uint32_t slot) { return *boxes_.at(SlotIndex(slot)).agent; }
  Incarnation incarnation(std::uint32_t slot) { return boxes_.at(SlotIndex(slot)).incarnation; }
  control::Controller& controller() { return *controller_; }
  Instant now() const { return now_; }

  void Launch(std::uint32_t slot);           // a new incarnation, registered
  void Register(std::uint32_t slot);         // the same one again, as its agent does that has found a controller
  void Release(std::uint32_t slot);          // both memory tags, as a trainer that shares the device does
  void LoseAgent(std::uint32_t slot);        // dead, and its controller is told so
  void Partition(std::uint32_t slot);        // alive, and out of reach: nobody knows which
  void KillServer(std::uint32_t slot);       // its process dies; only its agent notices
  void BreakLink(std::uint32_t slot);        // its transfer fails, both ends live
  void LosePolicy(std::uint32_t rank);       // its process dies: links break
  void JoinPolicy(std::uint32_t rank);       // a new process of that rank
  void BreakConnection(std::uint32_t rank);  // to a policy worker that lives
  void RegisterPolicy(std::uint32_t rank);   // the same one again
  void Deliver(const control::ControllerEvent& event);
  // A controller of the next term, built from what is in the journal; every agent registers with it. The one before
  // stays where it was: frozen, until ThawFormer lets it go on.
  void TakeOver();
  void ThawFormer() { former_thawed_ = true; }
  void DeliverToFormer(const control::ControllerEvent& event) { ToSender(event, Term(term_.value() - 1)); }

  // Faults and observation points. `before` of a command: return false to drop it.
  std::function<bool(SlotIndex, const sync::AgentCommand&)> on_agent_command;
  std::function<bool(SlotIndex, const sync::AgentReply&)> on_agent_reply;
  std::function<bool(PolicyRank, const sync::PolicyCommand&)> on_policy_command;
  std::function<void(SlotIndex, std::size_t)> on_load;                  // before the update of that load
  std::function<Status(SlotIndex, const sync::StreamSource&)> on_link;  // the answer to a handshake
  Status commit_status;
  bool answer_commit = true;
  // Of the world around the controller. None: never answered.
  std::function<std::optional<Status>(const control::Record&)> on_append;
  std::function<std::optional<Status>(SlotIndex)> on_launch;
  std::function<std::optional<Status>(SlotIndex)> on_probe;
  std::function<std::optional<Status>(SlotIndex)> on_drain;
  std::function<bool(SlotIndex)> on_shut_down;            // whether it is answered
  std::function<std::optional<bool>(SlotIndex)> on_kill;  // whether death is confirmed
  std::function<std::optional<Status>(const fleet::RouterAction&)> on_router;
  bool lose_written =
      false;                // an append that is not answered, or answered with an error, is in the journal all the same
  bool block_send = false;  // sources do not return
  bool hold_loads = false;  // nothing comes
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
  // Everything that a controller let out, in order: "append COMMIT", "0 pause", "policy 1 lease", "0 launch",
  // "0 drain", "0 shut down", "0 hard kill", "0 probe", "router add 0", "answer", "shutdown: OK", "REQUEST: OK" of a
  // slot.
  const std::vector<std::string>& trace() const { return trace_; }
  int traced(std::string_view line) const;
  std::size_t traced_at(std::string_view line) const;  // its first place; the trace's size where it is not
  void ClearTrace() { trace_.clear(); }
  const std::vector<fleet::SlotArrow>& arrows(std::uint32_t slot) { return arrows_[SlotIndex(slot)]; }
  fleet::SlotState state(std::uint32_t slot);
  const std::vector<std::string>& journal() const { return journal_; }
  const control::JournalState& journal_state() const { return journal_state_; }
  std::vector<control::Record> records(std::string_view name) const;
  std::map<std::string, fleet::RouterEntry>& router() { return router_; }
  bool routed(std::uint32_t slot);  // the life that is in it now
  const control::ProbeEngine& last_probe() const { return last_probe_; }
  const std::vector<sync::AgentCommand>& commands(std::uint32_t slot) { return sent_[SlotIndex(slot)]; }
  const std::vector<std::pair<SlotIndex, sync::StreamSource>>& opened_links() const { return opened_links_; }
  int closed_links() const { return closed_links_; }
  int exit_code() const { return stopped_; }  // of the controller, once it had to stop
  int former_exit_code() const { return former_stopped_; }
  std::vector<control::SyncAnswered> TakeAnswers() { return std::exchange(answers_, {}); }
  std::vector<std::string> Violations() const;  // of every engine that ever lived, and of the rig's own checks

 private:
  struct AgentBox {
    Incarnation incarnation;
    bool unreachable = false;
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
  control::ControllerOptions MakeOptions(Term term) const;
  void ToController(const control::ControllerEvent& event);
  void ToSender(const control::ControllerEvent& event, Term term);  // whichever controller sent the command
  void HandDeadline(control::Controller& controller, Term term);
  void ToAgent(SlotIndex slot, Incarnation incarnation, const peer::EngineAgentEvent& event);
  void ToPolicy(PolicyRank rank, const peer::PolicyAgentEvent& event);
  void CarryOut(const control::ControllerEffects& effects, Term term);
  void CarryOutWorld(const control::ControllerEffect& effect, Term term);
  void Write(const control::Record& record);
  void OnAppend(const control::Append& append, Term term);
  void OnLaunchEngine(const control::LaunchEngine& launch);
  void OnProbe(const control::ProbeEngine& probe);
  void OnRouterCall(const control::RouterCall& call);
  void CheckTraffic(const char* when);
  void CarryOut(SlotIndex slot, const peer::EngineAgentEffects& effects);
  void CarryOut(PolicyRank rank, const peer::PolicyAgentEffects& effects);
  void CheckCommit(const control::CommitRecord& commit);
  void Answer(SlotIndex slot, std::uint64_t call, const sync::Answer& answer);
  void Feed(SlotIndex slot);    // the next load, where all its senders are sending
  void Detach(SlotIndex slot);  // its transfer is over, one way or the other
  void EndSendIfDone(PolicyRank rank);
  void NewPolicy(std::uint32_t rank);
  bool Step();
  Instant NextDeadline() const;

  RigOptions options_;
  Instant now_{std::chrono::seconds(1)};
  std::uint64_t next_life_ = 1;
  Term term_{4};
  std::unique_ptr<control::Controller> controller_;
  std::unique_ptr<control::Controller> former_;
  bool former_thawed_ = false;
  std::map<SlotIndex, AgentBox> boxes_;
  std::map<PolicyRank, PolicyBox> policies_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::string> log_;
  std::vector<std::string> violations_;
  std::vector<control::CommitRecord> commits_;
  std::vector<std::pair<SlotIndex, sync::StreamSource>> opened_links_;
  int closed_links_ = 0;
  int stopped_ = 0;
  int former_stopped_ = 0;
  std::vector<std::string> journal_;  // payloads
  control::JournalState journal_state_;
  std::map<std::string, fleet::RouterEntry> router_;  // by id
  std::uint64_t next_entry_ = 1;
  control::ProbeEngine last_probe_{};
  std::vector<std::string> trace_;
  std::map<SlotIndex, std::vector<fleet::SlotArrow>> arrows_;
  std::size_t asked_ = 0;
  std::size_t answered_ = 0;
  std::vector<control::SyncAnswered> answers_;
  std::map<SlotIndex, std::vector<sync::AgentCommand>> sent_;
};

}  // namespace refit::testing
