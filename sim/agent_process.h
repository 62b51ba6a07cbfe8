// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The agent of one slot: launches engines, one at a time, each with its own peer::EngineAgent, makes their calls and
// registers them. Carries out effects as runtime/agent_host.cc and engine_life.cc do. Its supervisor sees to it that an
// engine does not outlive it.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "refit/control/controller.h"
#include "refit/peer/engine_agent.h"
#include "sim/node.h"
#include "sim/reply_desk.h"
#include "sim/transfer.h"

namespace refit::sim {

class AgentProcess final : public Node {
 public:
  AgentProcess(World& world, SlotIndex slot);

  World& sim() const { return world(); }
  SlotIndex slot() const { return slot_; }

  // The supervisor has started it. before: the life that its predecessor had, which is reaped.
  void Begin(Incarnation before);
  void OnNewController();
  void OnControllerLost();
  void OnEngineDead(Incarnation incarnation);
  void ConfirmKill();  // a kill that could not be confirmed is, at last
  std::optional<Incarnation> life() const;
  std::optional<AttemptId> attempt() const;
  // That it holds no place of a link that a rank is said to read, when nothing is under way.
  void CheckAtRest() const;

  // ---- from controllers
  void Execute(const sync::AgentCommand& command, ReplyTo reply_to);
  void Launch(std::uint64_t launch, Duration budget, ReplyTo reply_to);
  void ShutDown(Incarnation incarnation, ReplyTo reply_to);
  void KillEngine(Incarnation incarnation, ReplyTo reply_to);
  void Probe(Incarnation incarnation, Duration timeout, ReplyTo reply_to);
  // ---- from policy workers
  void OnStreamOpened(PolicyRank rank, const OpenedStream& open, std::size_t slots);
  void OnStreamFailed(PolicyRank rank, const OpenedStream& open, const Status& status);
  void OnAnnounced(PolicyRank rank, const Announcement& announcement);
  void OnPolicyDied(PolicyRank rank);
  // ---- to policy workers
  void Release(PolicyRank rank, AttemptId attempt, LoadSeq seq);

 private:
  struct Life {
    Incarnation incarnation;
    Engine* engine = nullptr;
    peer::EngineAgent machine;
    ReplyDesk<sync::AgentReply> desk;
    std::vector<std::unique_ptr<Transfer>> transfers;  // the last one is the current one
    std::map<PolicyRank, Landing> landings;
    std::map<LinkId, PolicyRank> links;
    bool ended = false;
    Status why;
  };

  Instant next_deadline() const override;
  void OnDeadline() override;
  void OnKilled() override;

  void StartLaunch(std::uint64_t launch, ReplyTo reply_to);
  void FailLaunch(std::uint64_t launch, ReplyTo reply_to);
  void Launched(Engine& engine, std::uint64_t launch);
  void BeginLife(Engine& engine);
  void Relaunch();  // where nobody asks for it
  void Handle(Life& life, const peer::EngineAgentEvent& event);
  void CarryOut(Life& life, const peer::EngineAgentEffects& effects);
  void Carry(Life& life, const peer::CallEngine& effect);
  void Carry(Life& life, const peer::PostUpdate& effect);
  void Carry(Life& life, const peer::OpenLink& effect);
  void Carry(Life& life, const peer::CloseLink& effect);
  void Carry(Life& life, const peer::StartTransfer& effect);
  void Carry(Life& life, const peer::StopTransfer& effect);
  void Carry(Life& life, const peer::SendReply& effect);
  void Carry(Life& life, const peer::KillEngine& effect);
  void EndLife(Life& life, const Status& why);
  bool HardKill(Life& life);  // whether it is confirmed
  Transfer* current_transfer();
  void Answer(ReplyTo to, const sync::AgentReply& reply);

  void Register();
  void ReportGone(const control::AgentGone& gone);

  bool attached() const;  // its engine is somebody else's: never launched, never killed (settled C17)

  const SlotIndex slot_;
  std::vector<std::unique_ptr<Life>> lives_;
  Life* life_ = nullptr;  // that commands reach
  Engine* launching_ = nullptr;
  std::pair<Term, std::uint64_t> newest_launch_;  // that was asked for
  std::optional<Incarnation> unconfirmed_;        // its kill
  Duration relaunch_pause_ = std::chrono::milliseconds(500);
  std::uint64_t registration_ = 0;
  bool registered_ = false;
};

}  // namespace refit::sim
