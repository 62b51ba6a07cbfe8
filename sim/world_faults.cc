// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the plan does to processes, and what people do.

#include <algorithm>
#include <utility>

#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/client.h"
#include "sim/controller_process.h"
#include "sim/disk.h"
#include "sim/engine.h"
#include "sim/faults.h"
#include "sim/policy_process.h"
#include "sim/router.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {

bool World::Inject(const Fault& fault) {
  const SlotIndex slot(fault.target);
  AgentProcess* const there = agent(slot);
  const bool lives = there != nullptr && there->alive();
  Engine* const engine = lives && there->life().has_value() ? this->engine(*there->life()) : nullptr;
  switch (fault.kind) {
    case FaultKind::kKillEngine: return engine != nullptr && engine->alive() && (engine->Kill(), true);
    case FaultKind::kFreezeEngine: return engine != nullptr && FreezeNode(*engine, fault.lasts);
    case FaultKind::kKillAgent: return KillAgent(slot);
    case FaultKind::kFreezeAgent: return lives && FreezeNode(*there, fault.lasts);
    case FaultKind::kKillPolicy: return KillPolicy(PolicyRank(fault.target));
    case FaultKind::kKillController: return KillController();
    case FaultKind::kFreezeController: return FreezeController(fault.lasts);
    case FaultKind::kSecondController:
      if (controller() == nullptr) {
        return false;
      }
      StartController();
      return true;
    case FaultKind::kForgetRouter: return router_->Forget(), true;
    case FaultKind::kForeignEntry: return router_->AddForeign(), true;
    case FaultKind::kCancelSync: return client_->waits() && (client_->Cancel(), true);
    case FaultKind::kConcurrentSync: return client_->AskConcurrently(), true;
    case FaultKind::kChangeWeights: return ChangeWeights();
    case FaultKind::kAddSlot: return AddSlot(slot);
    case FaultKind::kRemoveSlot: return RemoveSlot(slot);
    default: return false;
  }
}

bool World::KillAgent(SlotIndex slot) {
  AgentProcess* const there = agent(slot);
  if (there == nullptr || !there->alive()) {
    return false;
  }
  const Incarnation life = there->life().value_or(Incarnation{});
  there->Kill();
  Note("agent ", slot, " is dead");
  for (ControllerProcess* const process : LiveControllers()) {
    After(Between(Micros(100), Millis(5)), [process, slot, life] {
      process->Run([process, slot, life] {
        if (!life.is_zero()) {
          process->OnAgentGone({slot, life, Unavailable("connection reset")});
        }
      });
    });
  }
  RestartLater(there->id(), Between(Millis(50), Millis(2000)));
  return true;
}

bool World::FreezeNode(Node& node, Duration lasts) {
  if (!node.alive() || node.frozen()) {
    return false;
  }
  node.Freeze();
  if (lasts > Duration(0)) {
    After(lasts, [&node] { node.Thaw(); });
  }
  return true;
}

std::vector<ControllerProcess*> World::LiveControllers() const {
  std::vector<ControllerProcess*> live;
  for (const auto& process : controllers_) {
    if (process->alive()) {
      live.push_back(process.get());
    }
  }
  return live;
}

bool World::KillPolicy(PolicyRank rank) {
  PolicyProcess* const there = policy(rank);
  if (there == nullptr || !there->alive()) {
    return false;
  }
  there->Kill();
  Note("policy ", rank, " is dead");
  for (ControllerProcess* const process : LiveControllers()) {
    After(Between(Micros(100), Millis(5)), [process, rank, life = there->incarnation()] {
      process->Run([process, rank, life] { process->OnPolicyGone(rank, life); });
    });
  }
  for (const auto& [slot, process] : agents_) {
    After(Between(Micros(100), Millis(5)),
          [process, rank] { process->Run([process, rank] { process->OnPolicyDied(rank); }); });
  }
  RestartLater(there->id(), Between(Millis(50), Millis(2000)));
  return true;
}

bool World::KillController() {
  ControllerProcess* const there = controller();
  if (there == nullptr) {
    return false;
  }
  there->Kill();
  OnControllerStopped();
  return true;
}

// A successor takes over meanwhile; whether the old one notices that it was away is its own business.
bool World::FreezeController(Duration lasts) {
  ControllerProcess* const there = controller();
  if (there == nullptr || there->frozen()) {
    return false;
  }
  there->Freeze();
  const Duration away = lasts > Duration(0) ? lasts : Millis(5000);
  After(away, [this, there] {
    there->OnThawed(now_);
    there->Thaw();
  });
  After(kTakeoverAfter + Between(Millis(1), Millis(500)), [this, there] {
    if (controller() == there && there->frozen()) {
      StartController();
    }
  });
  return true;
}

bool World::ChangeWeights() {
  named_.back() = weights_->AddContent();
  Note("the trainer steps: content ", named_.back());
  return true;
}

bool World::AddSlot(SlotIndex slot) {
  if (agents_.contains(slot) || controller() == nullptr) {
    return false;
  }
  slots_.push_back(slot);
  StartAgent(slot);
  for (ControllerProcess* const process : LiveControllers()) {
    After(Millis(1), [process, slot] { process->Run([process, slot] { process->OnSlotAdded(slot); }); });
  }
  return true;
}

bool World::RemoveSlot(SlotIndex slot) {
  const auto found = std::find(slots_.begin(), slots_.end(), slot);
  if (found == slots_.end() || slots_.size() == 1 || controller() == nullptr) {
    return false;
  }
  slots_.erase(found);
  removed_.push_back(slot);
  for (ControllerProcess* const process : LiveControllers()) {
    After(Millis(1), [process, slot] { process->Run([process, slot] { process->OnSlotRemoved(slot); }); });
  }
  return true;
}

}  // namespace refit::sim
