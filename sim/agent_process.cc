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

AgentProcess::AgentProcess(World& world, SlotIndex slot)
    : Node(world, {ProcessKind::kAgent, slot.value()}), slot_(slot) {}

std::optional<Incarnation> AgentProcess::life() const {
  return life_ == nullptr ? std::nullopt : std::optional(life_->incarnation);
}

std::optional<AttemptId> AgentProcess::attempt() const {
  return life_ == nullptr ? std::nullopt : std::optional(life_->machine.attempt());
}

bool AgentProcess::attached() const {
  return !world().plan().fault_tolerance && world().plan().attached == slot_.value();
}

void AgentProcess::CheckAtRest() const {
  if (life_ == nullptr) {
    return;
  }
  for (const auto& [rank, landing] : life_->landings) {
    for (const std::shared_ptr<LoadMemory>& place : landing.places) {
      if (place != nullptr) {
        world().checks().OnRest(slot_, "a landing place", place.get());
      }
    }
  }
}

void AgentProcess::Begin(Incarnation before) {
  if (!before.is_zero()) {
    ReportGone({slot_, before, Unavailable("the agent was killed"), !attached()});
  }
  if (!world().plan().fault_tolerance) {
    StartLaunch(0, {});
  }
}

// ---- launching

void AgentProcess::Launch(std::uint64_t launch, Duration budget, ReplyTo reply_to) {
  static_cast<void>(budget);
  world().Note("agent ", slot_, " <- launch ", launch);
  if (life_ != nullptr) {
    return Register();  // its engine lives: whoever asks does not know of it
  }
  const std::pair asked(reply_to.controller->term(), launch);
  if (asked <= newest_launch_) {
    return FailLaunch(launch, reply_to);  // it was long under way, and whoever sent it has sent another one
  }
  newest_launch_ = asked;
  if (launching_ == nullptr) {
    StartLaunch(launch, reply_to);
  }
}

void AgentProcess::FailLaunch(std::uint64_t launch, ReplyTo reply_to) {
  world().network().Send(id(), reply_to.controller->id(), [this, launch, reply_to] {
    reply_to.controller->Run([this, launch, reply_to] { reply_to.controller->OnLaunchFailed(slot_, launch); });
  });
}

void AgentProcess::StartLaunch(std::uint64_t launch, ReplyTo reply_to) {
  if (world().faults().Take(FaultKind::kFailLaunch, slot_.value())) {
    world().After(world().Between(Millis(20), Millis(800)), [this, launch, reply_to] {
      Run([this, launch, reply_to] {
        if (reply_to.controller == nullptr) {
          return Relaunch();
        }
        FailLaunch(launch, reply_to);
      });
    });
    return;
  }
  launching_ = attached() ? &world().RunningEngine(slot_) : &world().StartEngine(slot_);
  world().After(world().Between(Millis(200), Millis(2000)),
                [this, launch, engine = launching_] { Run([this, launch, engine] { Launched(*engine, launch); }); });
}

void AgentProcess::Launched(Engine& engine, std::uint64_t launch) {
  if (launching_ != &engine) {
    return;
  }
  if (attached() && (engine.frozen() || engine.busy())) {  // with what its last client left: it does not answer yet
    return world().After(Millis(200),
                         [this, launch, &engine] { Run([this, launch, &engine] { Launched(engine, launch); }); });
  }
  launching_ = nullptr;
  if (!engine.alive()) {
    return world().plan().fault_tolerance
               ? ReportGone({slot_, engine.incarnation(), Unavailable("it never came up"), true})
               : Relaunch();
  }
  if (attached()) {
    world().BeginLife(engine);
  }
  BeginLife(engine);
}

void AgentProcess::BeginLife(Engine& engine) {
  const Plan& plan = world().plan();
  peer::EngineAgentOptions options;
  options.slot = slot_;
  options.incarnation = engine.incarnation();
  options.run = world().disk().run();
  options.term_floor = world().disk().term();
  options.family = plan.family;
  options.profile = world().profile();
  options.tp_size = plan.tp_size;
  options.expected = world().weights().manifest();
  options.call_deadline = kCallDeadline;
  options.update_deadline = kUpdateDeadline;
  options.flush_retry_interval = kFlushRetryInterval;
  options.stall_deadline = kStallDeadline;
  options.orphan_deadline = kOrphanDeadline;
  options.attached = attached();
  world().checks().OnLife(engine, options.term_floor);
  lives_.push_back(std::unique_ptr<Life>(
      new Life{engine.incarnation(), &engine, peer::EngineAgent(options), {}, {}, {}, {}, false, {}}));
  life_ = lives_.back().get();
  OnNewController();
}

// Agents look after their engines themselves.
void AgentProcess::Relaunch() {
  const Duration pause = relaunch_pause_;
  relaunch_pause_ = std::min<Duration>(2 * relaunch_pause_, std::chrono::seconds(4));
  world().After(pause, [this] {
    Run([this] {
      if (life_ == nullptr && launching_ == nullptr) {
        StartLaunch(0, {});
      }
    });
  });
}

// ---- the end of a life

void AgentProcess::Carry(Life& life, const peer::KillEngine& effect) {
  world().Note("engine ", slot_, " life ", life.incarnation.low, " is ended: ", effect.reason);
  const bool confirmed = HardKill(life);
  life.ended = true;
  life.why = Aborted(effect.reason);
  if (life_ == &life) {
    life_ = nullptr;
  }
  if (confirmed) {
    EndLife(life, life.why);
  } else {
    ReportGone({slot_, life.incarnation, life.why, false, life.machine.died_in_update()});
  }
  if (attached()) {
    Relaunch();
  }
}

bool AgentProcess::HardKill(Life& life) {
  if (attached()) {
    life.ended = true;  // let go of
    return false;
  }
  if (life.engine->alive() && world().faults().Take(FaultKind::kKillUnconfirmed, slot_.value())) {
    unconfirmed_ = life.incarnation;
    return false;
  }
  life.ended = true;  // first: its death is no news to whoever wanted it
  life.engine->Kill();
  return true;
}

void AgentProcess::ConfirmKill() {
  if (const auto incarnation = std::exchange(unconfirmed_, std::nullopt); incarnation.has_value()) {
    world().engine(*incarnation)->Kill();
    ReportGone({slot_, *incarnation, Aborted("its kill is confirmed"), true});
    if (!world().plan().fault_tolerance) {
      Relaunch();
    }
  }
}

void AgentProcess::EndLife(Life& life, const Status& why) {
  life.ended = true;
  if (life_ == &life) {
    life_ = nullptr;
  }
  ReportGone({slot_, life.incarnation, why, true, life.machine.died_in_update()});
  if (!world().plan().fault_tolerance) {
    Relaunch();
  }
}

void AgentProcess::OnEngineDead(Incarnation incarnation) {
  if (life_ == nullptr || life_->incarnation != incarnation) {
    return;
  }
  world().After(world().Between(Millis(1), Millis(100)), [this, life = life_] {
    Run([this, life] {
      if (!life->ended) {
        Handle(*life, peer::EngineDied{Unavailable("the engine's process ended")});
      }
    });
  });
}

void AgentProcess::OnKilled() {
  for (const std::unique_ptr<Life>& life : lives_) {
    life->ended = true;
    if (!attached()) {
      life->engine->Kill();
    }
  }
  if (launching_ != nullptr && !attached()) {
    launching_->Kill();
  }
  life_ = nullptr;
}

void AgentProcess::ShutDown(Incarnation incarnation, ReplyTo reply_to) {
  world().Note("agent ", slot_, " <- shut down life ", incarnation.low);
  Engine* const engine = world().engine(incarnation);
  world().After(world().Between(Millis(5), Millis(300)), [this, engine, incarnation, reply_to] {
    Run([this, engine, incarnation, reply_to] {
      if (engine != nullptr && engine->slot() == slot_ && engine->alive() && !engine->frozen() &&
          unconfirmed_ != incarnation) {
        engine->Kill();
      }
      world().network().Send(id(), reply_to.controller->id(), [this, incarnation, reply_to] {
        reply_to.controller->Run(
            [this, incarnation, reply_to] { reply_to.controller->OnShutDown(slot_, incarnation); });
      });
    });
  });
}

// Works where nothing was launched, and where the life is one of an agent before this one: its supervisor reaped that.
void AgentProcess::KillEngine(Incarnation incarnation, ReplyTo reply_to) {
  world().Note("agent ", slot_, " <- kill life ", incarnation.low);
  bool confirmed = unconfirmed_ != incarnation || incarnation.is_zero();
  if (life_ != nullptr && life_->incarnation == incarnation) {
    Life& life = *life_;
    confirmed = HardKill(life);
    life.ended = true;
    life_ = nullptr;
    ReportGone({slot_, incarnation, Aborted("its controller had it killed"), confirmed});
  }
  if (launching_ != nullptr && (incarnation.is_zero() || launching_->incarnation() == incarnation)) {
    std::exchange(launching_, nullptr)->Kill();
  }
  world().After(Millis(2), [this, incarnation, reply_to, confirmed] {
    Run([this, incarnation, reply_to, confirmed] {
      world().network().Send(id(), reply_to.controller->id(), [this, incarnation, reply_to, confirmed] {
        reply_to.controller->Run(
            [this, incarnation, reply_to, confirmed] { reply_to.controller->OnKilled(slot_, incarnation, confirmed); });
      });
    });
  });
}

void AgentProcess::Probe(Incarnation incarnation, Duration timeout, ReplyTo reply_to) {
  const auto answer = [this, reply_to](bool healthy) {
    Run([this, reply_to, healthy] {
      world().network().Send(id(), reply_to.controller->id(), [reply_to, healthy] {
        reply_to.controller->Run([reply_to, healthy] { reply_to.controller->OnProbed(reply_to.call, healthy); });
      });
    });
  };
  if (life_ == nullptr || life_->incarnation != incarnation) {
    return answer(false);
  }
  life_->engine->Probe(timeout, answer);
}

// ---- streams

Transfer* AgentProcess::current_transfer() {
  return life_ == nullptr || life_->transfers.empty() ? nullptr : life_->transfers.back().get();
}

void AgentProcess::OnStreamOpened(PolicyRank rank, const OpenedStream& open, std::size_t slots) {
  if (Transfer* const transfer = current_transfer(); transfer != nullptr) {
    transfer->OnOpened(rank, open.stamp.attempt, slots);
  }
}

void AgentProcess::OnStreamFailed(PolicyRank rank, const OpenedStream& open, const Status& status) {
  if (Transfer* const transfer = current_transfer(); transfer != nullptr) {
    transfer->OnFailed(rank, open.stamp.attempt, status);
  }
}

void AgentProcess::OnAnnounced(PolicyRank rank, const Announcement& announcement) {
  if (Transfer* const transfer = current_transfer(); transfer != nullptr) {
    transfer->OnAnnounced(rank, announcement);
  }
}

// Its streams break.
void AgentProcess::OnPolicyDied(PolicyRank rank) {
  if (Transfer* const transfer = current_transfer(); transfer != nullptr) {
    transfer->OnFailed(rank, transfer->attempt(), Unavailable("its policy worker is gone"));
  }
}

void AgentProcess::Release(PolicyRank rank, AttemptId attempt, LoadSeq seq) {
  world().ToPolicy(*this, rank,
                   [slot = slot_, attempt, seq](PolicyProcess& policy) { policy.Release(slot, attempt, seq); });
}

// ---- registration

void AgentProcess::OnControllerLost() {
  if (life_ != nullptr) {
    Handle(*life_, peer::ContactLost{});
  }
}

void AgentProcess::OnNewController() {
  registered_ = false;
  ++registration_;
  Register();
}

void AgentProcess::Register() {
  if (life_ == nullptr) {
    return;
  }
  const std::uint64_t registration = registration_;
  ControllerProcess* controller = world().controller();
  if (ControllerProcess* const before = world().superseded();
      before != nullptr && world().faults().Take(FaultKind::kStaleLookup, slot_.value())) {
    controller = before;
  }
  if (controller != nullptr) {
    const peer::EngineAgent& machine = life_->machine;
    const sync::EngineMember member{.slot = slot_,
                                    .incarnation = life_->incarnation,
                                    .tp_size = world().plan().tp_size,
                                    .residue = machine.residue(),
                                    .serving = machine.phase() == peer::AgentPhase::kServing,
                                    .attempt = machine.attempt(),
                                    .links = machine.links(),
                                    .attached = attached()};
    world().network().Send(id(), controller->id(), [this, registration, controller, member] {
      controller->Run([this, registration, controller, member] {
        controller->Register(member);
        world().network().Send(controller->id(), id(), [this, registration, controller] {
          Run([this, registration, controller] {
            if (controller != world().controller()) {
              return;  // looked up again soon
            }
            if (registration == registration_ && !std::exchange(registered_, true) && life_ != nullptr) {
              Handle(*life_, peer::ContactMade{});
            }
          });
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

// Until some controller has heard it.
void AgentProcess::ReportGone(const control::AgentGone& gone) {
  const auto heard = std::make_shared<bool>(false);
  if (ControllerProcess* const controller = world().controller(); controller != nullptr) {
    world().network().Send(id(), controller->id(), [this, controller, gone, heard] {
      controller->Run([this, controller, gone, heard] {
        controller->OnAgentGone(gone);
        world().network().Send(controller->id(), id(), [heard] { *heard = true; });
      });
    });
  }
  world().After(Millis(1000), [this, gone, heard] {
    Run([this, gone, heard] {
      if (!*heard) {
        ReportGone(gone);
      }
    });
  });
}

}  // namespace refit::sim
