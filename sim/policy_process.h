// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A policy worker: the shipped peer::PolicyAgent, its source, and a stream per engine. Carries out effects as
// runtime/policy_host.cc does, and decides as little.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "refit/peer/policy_agent.h"
#include "refit/peer/send_roster.h"
#include "sim/node.h"
#include "sim/reply_desk.h"
#include "sim/send_stream.h"

namespace refit::sim {

class PolicyProcess final : public Node {
 public:
  PolicyProcess(World& world, PolicyRank rank, Incarnation incarnation);

  World& sim() const { return world(); }
  PolicyRank rank() const { return rank_; }
  Incarnation incarnation() const { return incarnation_; }

  // ---- from controllers
  void Execute(const sync::PolicyCommand& command, ReplyTo reply_to);
  void OnNewController();  // heard of one, or of a connection that broke: registers
  // ---- from agents
  void OpenStream(const OpenedStream& open);
  void Release(SlotIndex slot, AttemptId attempt, LoadSeq seq);
  void ReceiverLeft(SlotIndex slot, std::uint64_t serial);
  bool Proves(const sync::StreamSource& source) const { return alive() && source.incarnation == incarnation_; }
  void CheckAtRest() const;
  // ---- to agents
  void SendOpened(SlotIndex slot, const OpenedStream& open, std::size_t slots);
  void SendAnnouncement(SlotIndex slot, const OpenedStream& open, Announcement announcement);

 private:
  Instant next_deadline() const override { return machine_.next_deadline(); }
  void OnDeadline() override;
  void Handle(const peer::PolicyAgentEvent& event);
  void CarryOut(peer::PolicyAgentEffects& effects);
  void Carry(const peer::OpenSource& effect);
  void Carry(const peer::StartSend& effect);
  void Carry(const peer::StopSend& effect);
  void Carry(const peer::CloseSource& effect);
  void Carry(const peer::SendPolicyReply& effect);
  void FinishOpening(AttemptId attempt, const std::string& source);
  void FailStream(const OpenedStream& open, const Status& status);
  void ReportIfEnded();
  void Register();

  const PolicyRank rank_;
  const Incarnation incarnation_;
  peer::PolicyAgent machine_;
  ReplyDesk<sync::PolicyReply> desk_;
  Content content_ = 0;  // of the lease
  peer::SendRoster roster_;
  Instant send_deadline_{};
  std::vector<OpenedStream> waiting_;  // for their attempt's send
  std::map<SlotIndex, SendStream> streams_;
  std::uint64_t registration_ = 0;
  bool registered_ = false;
};

}  // namespace refit::sim
