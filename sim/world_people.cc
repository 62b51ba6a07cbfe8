// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Who starts and ends whom, what the plan does to processes, and how a run ends.

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
namespace {

// A machine that asks for the same instant for ever makes no progress in time.
constexpr std::uint64_t kMostSteps = 400'000;
// Of the faulty part: requests, their budgets, and what a lost controller adds.
constexpr Duration kPatience = std::chrono::minutes(30);
// After healing, until every slot serves again: launches with their back-offs, and two syncs.
constexpr Duration kSettleBound = std::chrono::seconds(120);
constexpr Duration kSettlePoll = std::chrono::milliseconds(500);
constexpr Duration kRest = std::chrono::milliseconds(500);  // until what was sent has arrived

}  // namespace

void World::SetUp() {
  for (const SlotIndex slot : slots_) {
    StartAgent(slot);
  }
  for (std::uint32_t rank = 0; rank < plan_.policies; ++rank) {
    StartPolicy(PolicyRank(rank));
  }
  StartController();
  traffic_->Start();
  faults_->Start();
}

// ---- processes

void World::StartController() {
  const auto number = static_cast<std::uint32_t>(controllers_.size());
  controllers_.push_back(std::make_unique<ControllerProcess>(*this, number, disk_->Acquire()));
  controllers_.back()->Begin();
  AnnounceController();
}

// Everybody looks controllers up in one place, and soon sees that another one answers there.
void World::AnnounceController() {
  for (const auto& [slot, process] : agents_) {
    After(Between(Millis(1), Millis(300)), [process] { process->Run([process] { process->OnNewController(); }); });
  }
  for (const auto& [rank, process] : policies_) {
    After(Between(Millis(1), Millis(300)), [process] { process->Run([process] { process->OnNewController(); }); });
  }
}

void World::OnControllerStopped() {
  if (controller() != nullptr) {
    return;  // its successor is there
  }
  client_->OnControllerLost(static_cast<std::uint32_t>(controllers_.size() - 1));
  for (const auto& [slot, process] : agents_) {
    After(Between(Millis(1), Millis(100)), [this, process] {
      if (controller() == nullptr) {
        process->Run([process] { process->OnControllerLost(); });
      }
    });
  }
  After(kTakeoverAfter + Between(Millis(1), Millis(500)), [this] {
    if (controller() == nullptr) {
      StartController();
    }
  });
}

void World::StartAgent(SlotIndex slot) {
  Incarnation before;
  for (const auto& life : engine_lives_) {
    before = life->slot() == slot ? life->incarnation() : before;
  }
  agent_lives_.push_back(std::make_unique<AgentProcess>(*this, slot));
  agents_[slot] = agent_lives_.back().get();
  Note("agent ", slot, " is started");
  AgentProcess* const process = agents_[slot];
  process->Run([process, before] { process->Begin(before); });
}

void World::StartPolicy(PolicyRank rank) {
  policy_lives_.push_back(std::make_unique<PolicyProcess>(*this, rank, NewLife()));
  policies_[rank] = policy_lives_.back().get();
  Note("policy ", rank, " is started");
  PolicyProcess* const process = policies_[rank];
  if (controller() != nullptr) {
    After(Between(Millis(1), Millis(100)), [process] { process->Run([process] { process->OnNewController(); }); });
  }
}

// Its connections are reset, and somebody starts it again.
void World::RestartLater(Process who, Duration delay) {
  for (ControllerProcess* const process : LiveControllers()) {
    After(Between(Micros(100), Millis(5)),
          [process, who] { process->Run([process, who] { process->OnPeerDied(who); }); });
  }
  After(delay, [this, who] {
    if (who.kind == ProcessKind::kAgent) {
      if (!agents_.at(SlotIndex(who.index))->alive()) {
        StartAgent(SlotIndex(who.index));
      }
    } else if (!policies_.at(PolicyRank(who.index))->alive()) {
      StartPolicy(PolicyRank(who.index));
    }
  });
}

// ---- how a run goes on, and ends

void World::RunFaults() {
  client_->Ask(plan_.requests, [this] { all_answered_ = true; });  // which may be long after this returned
  while (!all_answered_ && now_ < Instant{} + kPatience && Step()) {
    if (result_.steps > kMostSteps) {
      return Report(Checker::kL1, "time stands still");  // or goes on and on
    }
  }
}

void World::HealAll() {
  Note("healing");
  faults_->Heal();
  for (const auto& process : controllers_) {
    if (process->frozen()) {
      process->OnThawed(now_);
      process->Thaw();
    }
  }
  for (const auto& process : agent_lives_) {
    process->Thaw();
    AgentProcess* const one = process.get();
    one->Run([one] { one->ConfirmKill(); });
  }
  for (const auto& life : engine_lives_) {
    life->Thaw();
  }
  if (controller() == nullptr) {
    OnControllerStopped();
  } else {
    AnnounceController();  // connections that broke are made again
  }
}

// What the faults left may cost one sync; the one after it has to succeed, and with at most one further one every slot
// has to serve (INV-8, L2, L3).
void World::RunHealed() {
  HealAll();
  AskHealed(now_ + kSettleBound);
  while (!settled_ && Step()) {
    if (result_.steps > kMostSteps) {
      return Report(Checker::kL1, "time stands still");  // or goes on and on
    }
  }
}

void World::AskHealed(Instant until) {
  After(Millis(1000), [this, until] {
    client_->Ask(1, [this, until] {
      const bool ok = client_->last()->ok();
      if (disk_->Latched()) {
        settled_ = true;
        if (ok) {
          Report(Checker::kInv8, "a sync succeeds although the run is latched");
        }
      } else if (ok) {
        ++healed_syncs_;
        PollSettled(now_ + kSettleBound / (healed_syncs_ == 1 ? 4 : 1), until);
      } else if (++failed_syncs_ > 1 && now_ > until) {
        if (!AllRetired()) {
          Report(Checker::kInv8, StrCat("syncs fail after healing: ", client_->last()->ToString()));
        }
        settled_ = true;
      } else {
        AskHealed(until);
      }
    });
  });
}

void World::PollSettled(Instant poll_until, Instant until) {
  std::string why;
  for (const SlotIndex slot : slots_) {
    why = why.empty() ? WhyUnsettled(slot) : why;
  }
  if (why.empty()) {
    return After(kRest, [this] {
      CheckAtRest();
      settled_ = true;
    });
  }
  if (now_ < poll_until) {
    After(kSettlePoll, [this, poll_until, until] { PollSettled(poll_until, until); });
  } else if (healed_syncs_ == 1) {
    AskHealed(std::max(until, now_ + kSettleBound));  // whoever could not be caught up waits for the next refit
  } else {
    Report(why.find("paused") == std::string::npos ? Checker::kL3 : Checker::kL2, why);
  }
}

// S7: every load slot is free, every count at rest. What an engine refused to read stays counted until the next load is
// landed there, which in a slot that is used no more never comes.
void World::CheckAtRest() const {
  for (const auto& [slot, process] : agents_) {
    if (!Retired(slot)) {
      process->CheckAtRest();
    }
  }
  for (const auto& [rank, process] : policies_) {
    process->CheckAtRest();
  }
}

bool World::Retired(SlotIndex slot) const {
  const std::vector<control::SlotView> views =
      controller() == nullptr ? std::vector<control::SlotView>() : controller()->machine().slots();
  return std::any_of(views.begin(), views.end(), [slot](const control::SlotView& view) {
    return view.slot == slot && view.state == fleet::SlotState::kRetired;
  });
}

bool World::AllRetired() const {
  return std::all_of(slots_.begin(), slots_.end(), [this](SlotIndex slot) { return Retired(slot); });
}

std::string World::WhyUnsettled(SlotIndex slot) const {
  if (controller() == nullptr) {
    return "no controller";
  }
  if (Retired(slot)) {
    return {};
  }
  const AgentProcess* const there = agent(slot);
  const Engine* const engine = there == nullptr || !there->life().has_value() ? nullptr : this->engine(*there->life());
  if (engine == nullptr || !engine->alive()) {
    return StrCat("engine ", slot, " has no life");
  }
  if (!engine->generates()) {
    return StrCat("engine ", slot, " stays paused");
  }
  if (engine->content() != checks_->committed_content()) {
    return StrCat("engine ", slot, " does not serve version ", checks_->committed_version());
  }
  const auto& entries = router_->entries();
  const bool routed = std::any_of(entries.begin(), entries.end(), [engine](const Router::Entry& entry) {
    return entry.entry.incarnation == engine->incarnation();
  });
  return routed || !plan_.router ? "" : StrCat("engine ", slot, " is not routed");
}

}  // namespace refit::sim
