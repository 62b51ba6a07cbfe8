// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One life of a controller: takes a term, replays the journal, runs the shipped control::Controller and carries its
// effects out as runtime/controller_host.cc does: every call has a deadline, and a call that ends without an answer is
// a loss.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "refit/control/controller.h"
#include "sim/node.h"

namespace refit::sim {

class AgentProcess;

class ControllerProcess final : public Node {
 public:
  ControllerProcess(World& world, std::uint32_t number, Term term);

  void Begin();
  Term term() const { return term_; }
  std::uint32_t number() const { return number_; }
  const control::Controller& machine() const { return *machine_; }
  Instant thawed_at() const { return thawed_at_; }
  void OnThawed(Instant now) { thawed_at_ = now; }
  // Somebody's process ended: connections to it are reset.
  void OnAnswerLost(std::uint64_t call);  // its connection is cut, and nobody says so
  void OnPeerDied(Process peer);

  // ---- from peers
  void Register(const sync::EngineMember& member);
  void Register(const sync::PolicyMember& member);
  void OnAgentGone(const control::AgentGone& gone);
  void OnPolicyGone(PolicyRank rank, Incarnation incarnation);
  void OnAgentReply(std::uint64_t call, SlotIndex slot, const sync::AgentReply& reply);
  void OnPolicyReply(std::uint64_t call, const sync::PolicyReply& reply);
  void OnLaunchFailed(SlotIndex slot, std::uint64_t launch);
  void OnShutDown(SlotIndex slot, Incarnation incarnation);
  void OnKilled(SlotIndex slot, Incarnation incarnation, bool confirmed);
  void OnProbed(std::uint64_t call, bool healthy);
  void OnServed(SlotIndex slot, Incarnation incarnation, bool succeeded);
  void OnSlotAdded(SlotIndex slot);
  void OnSlotRemoved(SlotIndex slot);
  // ---- from the client
  void Request(const std::string& request_id, const std::string& source, Duration budget, std::uint64_t asking);
  void Cancel(const std::string& request_id);

 private:
  struct Call {  // to an agent or a policy worker, not answered
    Process whom{};
    SlotIndex slot{};
    PolicyRank rank{};
    Incarnation incarnation{};
    bool session = false;  // a command, else a probe
    std::uint64_t probe = 0;
  };

  Instant next_deadline() const override;
  void OnDeadline() override;
  void OnKilled() override;

  void Handle(const control::ControllerEvent& event);
  void CarryOut(control::ControllerEffects& effects);
  void Carry(const sync::SendToAgent& effect);
  void Carry(const sync::SendToPolicy& effect);
  void Carry(const control::Append& effect);
  void Carry(const control::SyncAnswered& effect);
  static void Carry(const control::ShutdownAnswered& /*effect*/) {}  // nobody asks for one
  static void Carry(const control::SlotAnswered& /*effect*/) {}      // nobody waits for one
  void Carry(const control::DrainEngine& effect);
  void Carry(const control::LaunchEngine& effect);
  void Carry(const control::ShutDownEngine& effect);
  void Carry(const control::KillEngine& effect);
  void Carry(const control::ProbeEngine& effect);
  void Carry(const control::CheckTerm& effect);
  void Carry(const control::RouterCall& effect);
  void Carry(const control::SlotChanged& effect);
  void Carry(const control::Stop& effect);

  std::uint64_t Begin(Call call, Duration deadline);
  void FailCall(std::uint64_t call, const Status& status);
  // Runs at that agent when the message arrives; refused where no agent is there.
  // False: it is lost.
  bool ToAgent(SlotIndex slot, std::function<void(AgentProcess&)> what, std::function<void()> refused);

  const std::uint32_t number_;
  const Term term_;
  std::unique_ptr<control::Controller> machine_;
  std::uint64_t next_call_ = 1;
  std::map<std::uint64_t, Call> calls_;
  std::multimap<std::string, std::uint64_t> waiting_;  // the client's askings, by request
  Instant thawed_at_{};
  bool stopped_ = false;
};

}  // namespace refit::sim
