// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/policy_process.h"

#include <algorithm>
#include <variant>

#include "refit/base/str.h"
#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/controller_process.h"
#include "sim/disk.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/world.h"

namespace refit::sim {

PolicyProcess::PolicyProcess(World& world, PolicyRank rank, Incarnation incarnation)
    : Node(world, {ProcessKind::kPolicy, rank.value()}),
      rank_(rank),
      incarnation_(incarnation),
      machine_(
          {.rank = rank, .incarnation = incarnation, .run = world.disk().run(), .term_floor = world.disk().term()}) {}

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
    world().network().Send(id(), to.controller->id(), [to, reply = effect.reply] {
      to.controller->Run([to, reply] { to.controller->OnPolicyReply(to.call, reply); });
    });
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
  active_ = Active{effect.stamp, effect.receivers, world().now() + effect.budget, false, {}, {}};
  world().checks().OnSend(rank_, effect.stamp.attempt, content_);
  for (const OpenedStream& open : std::exchange(waiting_, {})) {
    OpenStream(open);
  }
  ReportIfEnded();
}

void PolicyProcess::OpenStream(const OpenedStream& open) {
  if (open.policy != incarnation_) {
    return FailStream(open, Aborted("the stream is meant for an earlier life of this policy worker"));
  }
  if (!active_.has_value() || active_->stamp.attempt < open.stamp.attempt) {
    waiting_.push_back(open);  // its receiver gives up by its own budget
    return;
  }
  if (active_->stamp.attempt > open.stamp.attempt) {
    return FailStream(open, Aborted("that attempt is over"));
  }
  Admit(open);
}

void PolicyProcess::Admit(const OpenedStream& open) {
  const auto meant = [&open](const sync::Receiver& receiver) {
    return receiver.slot == open.slot && receiver.incarnation == open.stamp.incarnation;
  };
  if (active_->stopped || std::none_of(active_->receivers.begin(), active_->receivers.end(), meant) ||
      active_->results.contains(open.slot) || !active_->running.insert(open.slot).second) {
    return FailStream(open, Aborted("that engine has no stream here in this attempt"));
  }
  const AttemptId attempt = active_->stamp.attempt;
  SendStream& stream = streams_.try_emplace(open.slot, *this, open.slot).first->second;
  stream.Open(open, content_, active_->deadline, [this, open, attempt](const SendResult& result) {
    world().Note("policy ", rank_, " ended its stream to engine ", open.slot, ": ", static_cast<int>(result.end));
    if (result.end != SendEnd::kComplete) {
      FailStream(open, result.status);
    }
    if (active_.has_value() && active_->stamp.attempt == attempt) {
      active_->running.erase(open.slot);
      active_->results[open.slot] = result;
      ReportIfEnded();
    }
  });
}

void PolicyProcess::Carry(const peer::StopSend& effect) {
  if (!active_.has_value() || active_->stamp.attempt != effect.attempt) {
    return;
  }
  active_->stopped = true;
  for (const sync::Receiver& receiver : active_->receivers) {
    if (!active_->running.contains(receiver.slot)) {
      active_->results.try_emplace(receiver.slot,
                                   SendResult{SendEnd::kStopped, Aborted("it never opened its stream"), {}, {}});
    }
  }
  const std::set<SlotIndex> running = active_->running;
  for (const SlotIndex slot : running) {
    streams_.at(slot).Stop(SendEnd::kStopped, Aborted("the controller stopped the transfer"));
  }
  ReportIfEnded();
}

// One receiver that got everything is enough, and so is having none left: the controller judges engines (C6).
void PolicyProcess::ReportIfEnded() {
  if (!active_.has_value() || active_->results.size() != active_->receivers.size()) {
    return;
  }
  SendResult whole;
  for (const auto& [slot, result] : active_->results) {
    if (result.end == SendEnd::kComplete) {
      whole = result;
      break;
    }
    if (result.end != SendEnd::kReceiverLeft) {
      whole = result;
    }
  }
  const AttemptId attempt = active_->stamp.attempt;
  active_->receivers.push_back({});  // reported: never again
  world().After(Micros(10), [this, attempt, whole] {
    Run([this, attempt, whole] { Handle(peer::SendEnded{attempt, whole.status, whole.root, whole.totals}); });
  });
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
  world().After(Millis(1000), [this, registration] {
    Run([this, registration] {
      if (!registered_ && registration == registration_) {
        Register();
      }
    });
  });
}

}  // namespace refit::sim
