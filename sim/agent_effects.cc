// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/agent_process.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "refit/base/str.h"
#include "sim/checks.h"
#include "sim/controller_process.h"
#include "sim/disk.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/policy_process.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {

// ---- commands

void AgentProcess::Execute(const sync::AgentCommand& command, ReplyTo reply_to) {
  world().Note("agent ", slot_, " <- ", ToString(command.kind), " term ", command.stamp.term, " seq ",
               command.stamp.seq, " attempt ", command.stamp.attempt.n, " version ", command.stamp.version, " life ",
               command.stamp.incarnation.low);
  if (AgentProcess* const beside = world().AgentBeside(slot_);
      beside != nullptr && world().faults().Take(FaultKind::kMirror, slot_.value())) {
    world().After(world().Between(Micros(20), Millis(20)), [beside, command] {
      beside->Run([beside, command] { beside->Execute(command, {}); });  // nobody waits for its answer
    });
  }
  if (life_ == nullptr) {
    sync::AgentReply reply;
    reply.stamp = command.stamp;
    reply.kind = sync::ReplyKind::kStale;
    reply.status = Aborted("no engine lives here");
    reply.residue = sync::Residue::Unknown();
    reply.retryable_in_place = false;
    return Answer(reply_to, reply);
  }
  Life& life = *life_;
  peer::EngineAgentEffects effects;
  world().checks().BeforeCommand(*life.engine, command);
  life.machine.Handle(peer::CommandArrived{command}, world().now(), effects);
  world().checks().AfterCommand(*life.engine, command, effects);
  life.desk.Begin(command.stamp, reply_to);
  CarryOut(life, effects);
  life.desk.End();
}

Instant AgentProcess::next_deadline() const { return life_ == nullptr ? kNever : life_->machine.next_deadline(); }

void AgentProcess::OnDeadline() {
  Life& life = *life_;
  peer::EngineAgentEffects effects;
  life.machine.HandleDeadline(world().now(), effects);
  world().checks().AfterEvent(*life.engine, effects);
  CarryOut(life, effects);
}

void AgentProcess::Handle(Life& life, const peer::EngineAgentEvent& event) {
  if (life.ended) {
    return;
  }
  peer::EngineAgentEffects effects;
  life.machine.Handle(event, world().now(), effects);
  world().checks().AfterEvent(*life.engine, effects);
  CarryOut(life, effects);
}

void AgentProcess::CarryOut(Life& life, const peer::EngineAgentEffects& effects) {
  for (const peer::EngineAgentEffect& effect : effects) {
    std::visit([&](const auto& one) { Carry(life, one); }, effect);
  }
}

void AgentProcess::Carry(Life& life, const peer::CallEngine& effect) {
  life.engine->Call(effect.operation, effect.version, effect.deadline,
                    [this, &life, call = effect.call](const sync::Answer& answer) {
                      Run([this, &life, call, answer] { Handle(life, peer::EngineAnswered{call, answer}); });
                    });
}

void AgentProcess::Carry(Life& life, const peer::PostUpdate& effect) {
  if (life.transfers.empty()) {
    return;
  }
  life.transfers.back()->PostUpdate(effect);
}

void AgentProcess::Carry(Life& life, const peer::StartTransfer& effect) {
  world().checks().OnTransfer(*life.engine, effect);
  life.transfers.push_back(std::make_unique<Transfer>(
      *this, effect, *life.engine, life.landings, [this, &life](const peer::EngineAgentEvent& event) {
        world().After(Micros(5), [this, &life, event] { Run([this, &life, event] { Handle(life, event); }); });
      }));
  life.transfers.back()->Begin();
}

void AgentProcess::Carry(Life& life, const peer::StopTransfer& effect) {
  if (life.transfers.empty()) {
    return;
  }
  Transfer& transfer = *life.transfers.back();
  transfer.Stop([this, &life, &transfer, attempt = effect.attempt] {
    if (transfer.exhausted() && life.engine->alive()) {
      world().Note("engine ", slot_, " is ended: reads could not be fenced twice");
      if (attached()) {
        return Handle(life, peer::EngineDied{Unavailable("reads could not be fenced twice")});
      }
      life.engine->Kill();
    }
    Handle(life, peer::TransferFenced{attempt});
  });
}

// The handshake: a message there and back over the data path.
void AgentProcess::Carry(Life& life, const peer::OpenLink& effect) {
  const PolicyRank rank = effect.source.policy;
  life.links[effect.link] = rank;
  const auto answered = std::make_shared<bool>(false);
  const auto answer = [this, &life, link = effect.link, answered](const Status& status) {
    if (!std::exchange(*answered, true)) {
      Run([this, &life, link, status] { Handle(life, peer::LinkOpened{link, status}); });
    }
  };
  const Duration timeout = std::min(kLinkTimeout, effect.budget);
  world().After(timeout, [answer] { answer(DeadlineExceeded("the handshake got no answer")); });
  if (world().faults().TakeData(FaultKind::kFailBind, rank, slot_)) {
    world().After(Millis(1), [answer] { answer(Unavailable("the nonce did not arrive")); });
    return;
  }
  if (world().faults().TakeData(FaultKind::kCutData, rank, slot_)) {
    return;
  }
  world().ToPolicy(*this, rank, [this, source = effect.source, answer](PolicyProcess& policy) {
    const bool proved = policy.Proves(source);
    world().network().Send(policy.id(), id(), [answer, proved] {
      answer(proved ? OkStatus() : Unavailable("another life of the policy worker answered"));
    });
  });
}

// Its landing memory goes with it; what may still be written there keeps it.
void AgentProcess::Carry(Life& life, const peer::CloseLink& effect) {
  if (const auto link = life.links.find(effect.link); link != life.links.end()) {
    life.landings[link->second].places = {};
    life.links.erase(link);
  }
}

void AgentProcess::Carry(Life& life, const peer::SendReply& effect) {
  Answer(life.desk.Take(effect.reply), effect.reply);
}

void AgentProcess::Answer(ReplyTo to, const sync::AgentReply& reply) {
  constexpr std::string_view kWords[] = {"done", "failed", "stale", "unbound"};  // sync::ReplyKind
  world().Note("agent ", slot_, " answers seq ", reply.stamp.seq, " ", kWords[static_cast<std::size_t>(reply.kind)],
               " ", sync::ToString(reply.residue), reply.status.ok() ? "" : " ", reply.status.message());
  if (to.controller != nullptr) {
    const bool sent = world().network().Send(id(), to.controller->id(), [this, to, reply] {
      to.controller->Run([this, to, reply] { to.controller->OnAgentReply(to.call, slot_, reply); });
    });
    if (!sent) {
      to.controller->OnAnswerLost(to.call);
    }
  }
}

}  // namespace refit::sim
