// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/policy_process.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "refit/base/str.h"
#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/controller_process.h"
#include "sim/disk.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {

PolicyProcess::PolicyProcess(World& world, PolicyRank rank, Incarnation incarnation)
    : Node(world, {ProcessKind::kPolicy, rank.value()}),
      rank_(rank),
      incarnation_(incarnation),
      machine_(
          {.rank = rank, .incarnation = incarnation, .run = world.disk().run(), .term_floor = world.disk().term()}),
      roster_(incarnation) {}

void PolicyProcess::OnDeadline() {
  peer::PolicyAgentEffects effects;
  machine_.HandleDeadline(world().now(), effects);
  CarryOut(effects);
}

void PolicyProcess::Handle(const peer::PolicyAgentEvent& event) {
  peer::PolicyAgentEffects effects;
  machine_.Handle(event, world().now(), effects);
  CarryOut(effects);
}

void PolicyProcess::Execute(const sync::PolicyCommand& command, ReplyTo reply_to) {
  world().Note("policy ", rank_, " <- ", ToString(command.kind), " term ", command.stamp.term, " seq ",
               command.stamp.seq, " attempt ", command.stamp.attempt.n);
  desk_.Begin(command.stamp, reply_to);
  Handle(peer::PolicyCommandArrived{command});
  desk_.End();
}

void PolicyProcess::CarryOut(peer::PolicyAgentEffects& effects) {
  for (const peer::PolicyAgentEffect& effect : effects) {
    std::visit([this](const auto& one) { Carry(one); }, effect);
  }
}

void PolicyProcess::Carry(const peer::SendPolicyReply& effect) {
  const ReplyTo to = desk_.Take(effect.reply);
  if (to.controller != nullptr) {
    const bool sent = world().network().Send(id(), to.controller->id(), [to, reply = effect.reply] {
      to.controller->Run([to, reply] { to.controller->OnPolicyReply(to.call, reply); });
    });
    if (!sent) {
      to.controller->OnAnswerLost(to.call);
    }
  }
}

// ---- the source

void PolicyProcess::Carry(const peer::OpenSource& effect) {
  world().After(world().Between(Micros(100), Micros(2000)),
                [this, effect] { Run([this, effect] { FinishOpening(effect.attempt, effect.source); }); });
}

void PolicyProcess::FinishOpening(AttemptId attempt, const std::string& source) {
  if (world().faults().During(FaultKind::kBlockSource, rank_.value()).has_value()) {
    world().After(Millis(200),
                  [this, attempt, source] { Run([this, attempt, source] { FinishOpening(attempt, source); }); });
    return;
  }
  content_ = world().ContentOf(source);
  world().Note("policy ", rank_, " opened content ", content_);
  Handle(peer::SourceOpened{attempt, OkStatus(), world().weights().manifest()});
}

void PolicyProcess::Carry(const peer::CloseSource& effect) { static_cast<void>(effect); }

// ---- streams

void PolicyProcess::Carry(const peer::StartSend& effect) {
  roster_.Start(effect.stamp.attempt, effect.receivers);
  send_deadline_ = world().now() + effect.budget;
  world().checks().OnSend(rank_, effect.stamp.attempt, content_);
  for (const OpenedStream& open : std::exchange(waiting_, {})) {
    OpenStream(open);
  }
  ReportIfEnded();
}

void PolicyProcess::OpenStream(const OpenedStream& open) {
  const auto admission = roster_.Admit({open.stamp.attempt, open.slot, open.stamp.incarnation, open.policy});
  if (!admission.has_value()) {
    return FailStream(open, admission.status());
  }
  if (*admission == peer::Admission::kWait) {
    waiting_.push_back(open);  // its receiver gives up by its own budget
    return;
  }
  SendStream& stream = streams_.try_emplace(open.slot, *this, open.slot).first->second;
  stream.Open(open, content_, send_deadline_, [this, open](const SendResult& result) {
    world().Note("policy ", rank_, " ended its stream to engine ", open.slot, ": ", static_cast<int>(result.end));
    if (result.end != SendEnd::kComplete) {
      FailStream(open, result.status);
    }
    roster_.End(open.stamp.attempt, open.slot, result);
    ReportIfEnded();
  });
}

void PolicyProcess::Carry(const peer::StopSend& effect) {
  if (roster_.attempt() != effect.attempt) {
    return;
  }
  roster_.Stop();
  for (auto& [slot, stream] : streams_) {
    stream.Stop(SendEnd::kStopped, Aborted("the controller stopped the transfer"));
  }
  ReportIfEnded();
}

void PolicyProcess::ReportIfEnded() {
  if (const auto whole = roster_.TakeWhole(); whole.has_value()) {
    world().After(Micros(10), [this, attempt = roster_.attempt(), result = *whole] {
      Run([this, attempt, result] { Handle(peer::SendEnded{attempt, result.status, result.root, result.totals}); });
    });
  }
}

void PolicyProcess::Release(SlotIndex slot, AttemptId attempt, LoadSeq seq) {
  if (const auto stream = streams_.find(slot); stream != streams_.end()) {
    stream->second.Release(attempt, seq);
  }
}

void PolicyProcess::ReceiverLeft(SlotIndex slot, std::uint64_t serial) {
  std::erase_if(waiting_, [&](const OpenedStream& open) { return open.serial == serial; });
  const auto stream = streams_.find(slot);
  if (stream != streams_.end() && stream->second.running() && stream->second.serial() == serial) {
    stream->second.Stop(SendEnd::kReceiverLeft, Unavailable("the engine left its load stream"));
  }
}

// Of the attempt that an engine is in: what an earlier one left is looked at when the next one opens.
void PolicyProcess::CheckAtRest() const {
  for (const auto& [slot, stream] : streams_) {
    const AgentProcess* const agent = world().agent(slot);
    if (agent != nullptr && !world().Retired(slot) && agent->life() == stream.open().stamp.incarnation &&
        agent->attempt() == stream.open().stamp.attempt) {
      stream.CheckAtRest();
    }
  }
}

void PolicyProcess::FailStream(const OpenedStream& open, const Status& status) {
  world().ToAgent(*this, open.slot,
                  [rank = rank_, open, status](AgentProcess& agent) { agent.OnStreamFailed(rank, open, status); });
}

void PolicyProcess::SendOpened(SlotIndex slot, const OpenedStream& open, std::size_t slots) {
  world().ToAgent(*this, slot,
                  [rank = rank_, open, slots](AgentProcess& agent) { agent.OnStreamOpened(rank, open, slots); });
}

void PolicyProcess::SendAnnouncement(SlotIndex slot, const OpenedStream& open, Announcement announcement) {
  world().Note("policy ", rank_, " announces ", announcement.bucket.seq, " to engine ", slot);
  static_cast<void>(open);
  world().ToAgent(*this, slot, [rank = rank_, announcement = std::move(announcement)](AgentProcess& agent) {
    agent.OnAnnounced(rank, announcement);
  });
}

// ---- registration

void PolicyProcess::OnNewController() {
  registered_ = false;
  ++registration_;
  Register();
}

void PolicyProcess::Register() {
  const std::uint64_t registration = registration_;
  ControllerProcess* const controller = world().controller();
  if (controller != nullptr) {
    const sync::PolicyMember member{rank_, incarnation_, StrCat("policy:", rank_), world().sources_retained()};
    world().network().Send(id(), controller->id(), [this, registration, controller, member] {
      controller->Run([this, registration, controller, member] {
        controller->Register(member);
        world().network().Send(controller->id(), id(), [this, registration] {
          Run([this, registration] { registered_ = registered_ || registration == registration_; });
        });
      });
    });
  }
  // Again and again: an old life's registration may arrive after ours (runtime/contact.h).
  world().After(registered_ ? kRegisterAgain : Millis(1000), [this, registration] {
    Run([this, registration] {
      if (registration == registration_) {
        Register();
      }
    });
  });
}

}  // namespace refit::sim
