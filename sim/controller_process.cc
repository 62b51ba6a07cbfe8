// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/controller_process.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "refit/base/str.h"
#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/client.h"
#include "sim/disk.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/policy_process.h"
#include "sim/router.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {

ControllerProcess::ControllerProcess(World& world, std::uint32_t number, Term term)
    : Node(world, {ProcessKind::kController, number}), number_(number), term_(term) {}

void ControllerProcess::Begin() {
  const Plan& plan = world().plan();
  control::ControllerOptions options;
  options.run = world().disk().run();
  options.term = term_;
  options.profile = world().profile();
  options.slots = world().slots();
  for (std::uint32_t rank = 0; rank < plan.policies; ++rank) {
    options.policy_ranks.emplace_back(rank);
  }
  options.use_fault_tolerance = plan.fault_tolerance;
  options.use_router = plan.router;
  options.health.interval = kProbeInterval;
  options.health.timeout = kProbeTimeout;
  options.health.first_wait = kFirstWait;
  options.restarts.max_restarts = 6;
  options.restarts.window = std::chrono::seconds(300);
  options.restarts.first_backoff = Millis(200);
  options.restarts.max_backoff = std::chrono::seconds(4);
  options.launch_budget = kLaunchBudget;
  options.catch_up_budget = kCatchUpBudget;
  options.append_deadline = kAppendDeadline;
  options.command_budget = kCommandBudget;
  options.term_check_interval = kTermCheckInterval;
  options.stall_deadline = kStallDeadline;
  options.seed = world().Draw();
  const auto state = control::Replay(world().disk().Payloads());
  if (!state.has_value()) {
    world().Report(Checker::kS8, StrCat("the journal does not replay: ", state.status().ToString()));
    return Kill();
  }
  const bool first = world().disk().rows().size() <= 2;  // RUN, TERM
  machine_ = std::make_unique<control::Controller>(options, first ? nullptr : &*state);
  world().Note("controller ", number_, " starts with term ", term_);
  world().checks().OnController(*this, *state);
  Run([this] {
    control::ControllerEffects effects;
    machine_->Start(world().now(), effects);
    CarryOut(effects);
  });
}

Instant ControllerProcess::next_deadline() const {
  return machine_ == nullptr || stopped_ ? kNever : machine_->next_deadline();
}

void ControllerProcess::OnDeadline() {
  control::ControllerEffects effects;
  machine_->HandleDeadline(world().now(), effects);
  CarryOut(effects);
}

void ControllerProcess::OnKilled() { world().Note("controller ", number_, " is dead"); }

void ControllerProcess::Handle(const control::ControllerEvent& event) {
  if (stopped_ || machine_ == nullptr) {
    return;
  }
  world().checks().OnEvent(*this, event);
  control::ControllerEffects effects;
  machine_->Handle(event, world().now(), effects);
  CarryOut(effects);
}

void ControllerProcess::CarryOut(control::ControllerEffects& effects) {
  for (control::ControllerEffect& effect : effects) {
    if (!alive()) {
      return;
    }
    std::visit([this](const auto& one) { Carry(one); }, effect);
  }
}

// ---- calls

std::uint64_t ControllerProcess::Begin(Call call, Duration deadline) {
  const std::uint64_t id = next_call_++;
  calls_.emplace(id, call);
  world().After(deadline, [this, id] {
    if (calls_.contains(id)) {
      Run([this, id] { FailCall(id, DeadlineExceeded("no answer in time")); });
    }
  });
  return id;
}

void ControllerProcess::FailCall(std::uint64_t id, const Status& status) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) {
    return;
  }
  const Call call = found->second;
  calls_.erase(found);
  world().Note("controller ", number_, " lost call ", id, ": ", status.message());
  if (!call.session) {
    Handle(control::ProbeEnded{call.slot, call.incarnation, call.probe, status});
  } else if (call.whom.kind == ProcessKind::kAgent) {
    Handle(sync::SessionEvent{sync::AgentLost{call.slot, call.incarnation, status}});
  } else {
    Handle(sync::SessionEvent{sync::PolicyLost{call.rank, status}});
  }
}

void ControllerProcess::OnAnswerLost(std::uint64_t call) {
  world().After(kKeepAlive,
                [this, call] { Run([this, call] { FailCall(call, Unavailable("no answer to a ping")); }); });
}

void ControllerProcess::OnPeerDied(Process peer) {
  std::vector<std::uint64_t> broken;
  for (const auto& [call, what] : calls_) {
    if (what.whom == peer) {
      broken.push_back(call);
    }
  }
  for (const std::uint64_t call : broken) {
    FailCall(call, Unavailable("connection reset"));
  }
}

bool ControllerProcess::ToAgent(SlotIndex slot, std::function<void(AgentProcess&)> what,
                                std::function<void()> refused) {
  const Process agent{ProcessKind::kAgent, slot.value()};
  const bool sent = world().network().Send(id(), agent, [this, slot, agent, what = std::move(what), refused] {
    AgentProcess* const there = world().agent(slot);
    if (there == nullptr || !there->alive()) {
      world().network().Send(agent, id(), [this, refused] { Run(refused); });
      return;
    }
    there->Run([there, what] { what(*there); });
  });
  return sent;
}

void ControllerProcess::Carry(const sync::SendToAgent& effect) {
  const sync::AgentCommand& command = effect.command;
  world().Note("controller ", number_, " -> agent ", effect.slot, ": ", ToString(command.kind), " seq ",
               command.stamp.seq, " attempt ", command.stamp.attempt.n, " version ", command.stamp.version);
  world().checks().OnSent(*this, effect.slot, command);
  const std::uint64_t call = Begin({.whom = {ProcessKind::kAgent, effect.slot.value()},
                                    .slot = effect.slot,
                                    .incarnation = command.stamp.incarnation,
                                    .session = true},
                                   command.budget + 2 * kReplyMargin);
  const auto first = std::make_shared<bool>(true);
  const bool sent = ToAgent(
      effect.slot,
      [this, command, call, first](AgentProcess& agent) {
        // A second copy has nobody who waits for its answer.
        agent.Execute(command, std::exchange(*first, false) ? ReplyTo{this, call} : ReplyTo{});
      },
      [this, call] { FailCall(call, Unavailable("connection refused")); });
  if (!sent) {
    OnAnswerLost(call);
  }
  world().faults().OnCommandSent(effect.slot, command.kind);
}

void ControllerProcess::Carry(const sync::SendToPolicy& effect) {
  const sync::PolicyCommand& command = effect.command;
  world().Note("controller ", number_, " -> policy ", effect.rank, ": ", ToString(command.kind), " seq ",
               command.stamp.seq, " attempt ", command.stamp.attempt.n);
  const Process policy{ProcessKind::kPolicy, effect.rank.value()};
  const std::uint64_t call =
      Begin({.whom = policy, .rank = effect.rank, .incarnation = command.stamp.incarnation, .session = true},
            command.budget + 2 * kReplyMargin);
  const auto first = std::make_shared<bool>(true);
  const bool sent = world().network().Send(id(), policy, [this, rank = effect.rank, policy, command, call, first] {
    PolicyProcess* const there = world().policy(rank);
    if (there == nullptr || !there->alive()) {
      world().network().Send(
          policy, id(), [this, call] { Run([this, call] { FailCall(call, Unavailable("connection refused")); }); });
      return;
    }
    there->Run([this, there, command, call, first] {
      there->Execute(command, std::exchange(*first, false) ? ReplyTo{this, call} : ReplyTo{});
    });
  });
  if (!sent) {
    OnAnswerLost(call);
  }
}

void ControllerProcess::OnAgentReply(std::uint64_t call, SlotIndex slot, const sync::AgentReply& reply) {
  if (calls_.erase(call) > 0) {
    Handle(sync::SessionEvent{sync::AgentReplied{slot, reply}});
  }
}

void ControllerProcess::OnPolicyReply(std::uint64_t call, const sync::PolicyReply& reply) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) {
    return;
  }
  const PolicyRank rank = found->second.rank;
  calls_.erase(found);
  Handle(sync::SessionEvent{sync::PolicyReplied{rank, reply}});
}

// ---- the journal

void ControllerProcess::Carry(const control::Append& effect) {
  world().Note("controller ", number_, " appends ", control::NameOf(effect.record));
  world().checks().OnAppend(*this, effect.record);
  world().disk().Append(*this, term_, effect.record, [this, append = effect.append](const Status& status) {
    Handle(control::Appended{append, status});
  });
}

// ---- engines

void ControllerProcess::Carry(const control::LaunchEngine& effect) {
  world().Note("controller ", number_, " launches engine ", effect.slot);
  const auto failed = [this, effect](const char* why) {
    Handle(control::LaunchFailed{effect.slot, effect.launch, Unavailable(why)});
  };
  ToAgent(
      effect.slot,
      [this, effect](AgentProcess& agent) { agent.Launch(effect.launch, effect.budget, {this, effect.launch}); },
      [failed] { failed("connection refused"); });
}

void ControllerProcess::OnLaunchFailed(SlotIndex slot, std::uint64_t launch) {
  Handle(control::LaunchFailed{slot, launch, Unavailable("the engine did not come up")});
}

void ControllerProcess::Carry(const control::ShutDownEngine& effect) {
  ToAgent(
      effect.slot, [this, effect](AgentProcess& agent) { agent.ShutDown(effect.incarnation, {this, 0}); },
      [this, effect] { Handle(control::ShutDownEnded{effect.slot, effect.incarnation}); });
}

// Where no agent runs, its supervisor has ended what it owned.
void ControllerProcess::Carry(const control::KillEngine& effect) {
  ToAgent(
      effect.slot, [this, effect](AgentProcess& agent) { agent.KillEngine(effect.incarnation, {this, 0}); },
      [this, effect] { OnKilled(effect.slot, effect.incarnation, true); });
}

// Requests in flight end within moments: clients ask for little.
void ControllerProcess::Carry(const control::DrainEngine& effect) {
  const control::DrainEnded ended{effect.slot, effect.incarnation, OkStatus()};
  ToAgent(
      effect.slot,
      [this, ended](AgentProcess&) {
        world().After(world().Between(Millis(5), Millis(300)),
                      [this, ended] { Run([this, ended] { Handle(ended); }); });
      },
      [] {});
}

void ControllerProcess::OnShutDown(SlotIndex slot, Incarnation incarnation) {
  Handle(control::ShutDownEnded{slot, incarnation});
}

void ControllerProcess::OnKilled(SlotIndex slot, Incarnation incarnation, bool confirmed) {
  Handle(control::KillEnded{slot, incarnation, confirmed});
}

void ControllerProcess::Carry(const control::ProbeEngine& effect) {
  const std::uint64_t call = Begin({.whom = {ProcessKind::kAgent, effect.slot.value()},
                                    .slot = effect.slot,
                                    .incarnation = effect.incarnation,
                                    .probe = effect.probe},
                                   2 * effect.timeout);
  ToAgent(
      effect.slot,
      [this, effect, call](AgentProcess& agent) { agent.Probe(effect.incarnation, effect.timeout, {this, call}); },
      [this, call] { FailCall(call, Unavailable("connection refused")); });
}

void ControllerProcess::OnProbed(std::uint64_t call, bool healthy) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) {
    return;
  }
  const Call probe = found->second;
  calls_.erase(found);
  Handle(control::ProbeEnded{probe.slot, probe.incarnation, probe.probe,
                             healthy ? OkStatus() : Unavailable("the probe failed")});
}

void ControllerProcess::Carry(const control::SlotChanged& effect) {
  world().Note("slot ", effect.slot, " life ", effect.incarnation.low, ": ", fleet::ToString(effect.arrow.from), " -> ",
               fleet::ToString(effect.arrow.to), effect.reason.empty() ? "" : ", ", effect.reason);
  world().checks().OnArrow(effect);
}

void ControllerProcess::Carry(const control::CheckTerm&) {
  world().After(world().Between(Micros(50), kTermCheckTime),
                [this, term = world().disk().term()] { Run([this, term] { Handle(control::TermChecked{term}); }); });
}

void ControllerProcess::Carry(const control::RouterCall& effect) {
  world().checks().OnRouterCall(*this, effect.action);
  const auto answered = std::make_shared<bool>(false);
  const auto answer = [this, call = effect.call, answered](const Status& status,
                                                           const std::vector<fleet::RouterEntry>& entries) {
    if (!std::exchange(*answered, true)) {
      Handle(control::RouterAnswered{call, status, entries});
    }
  };
  world().After(effect.deadline, [this, answer, answered] {
    if (!*answered) {
      Run([answer] { answer(DeadlineExceeded("the router does not answer"), {}); });
    }
  });
  world().network().Send(id(), {ProcessKind::kRouter, 0}, [this, effect, answer] {
    world().router().Serve(*this, effect.action,
                           [this, answer](const Status& status, const std::vector<fleet::RouterEntry>& entries) {
                             world().network().Send({ProcessKind::kRouter, 0}, id(), [this, answer, status, entries] {
                               Run([answer, status, entries] { answer(status, entries); });
                             });
                           });
  });
}

void ControllerProcess::Carry(const control::Stop& effect) {
  world().Note("controller ", number_, " stops with ", effect.exit_code, ": ", effect.status.message());
  stopped_ = true;
  world().After(Micros(1), [this] {
    Kill();
    world().OnControllerStopped();
  });
}

// ---- from peers

void ControllerProcess::Register(const sync::EngineMember& member) {
  world().Note("controller ", number_, " hears of engine ", member.slot, " life ", member.incarnation.low, " ",
               sync::ToString(member.residue), member.serving ? " serving" : " paused");
  Handle(control::AgentRegistered{member});
}

void ControllerProcess::Register(const sync::PolicyMember& member) { Handle(control::PolicyRegistered{member}); }

void ControllerProcess::OnAgentGone(const control::AgentGone& gone) {
  world().Note("controller ", number_, " hears: engine ", gone.slot, " life ", gone.incarnation.low, " is gone");
  Handle(gone);
}

void ControllerProcess::OnPolicyGone(PolicyRank rank, Incarnation incarnation) {
  Handle(control::PolicyGone{rank, incarnation, Unavailable("connection reset")});
}

void ControllerProcess::OnServed(SlotIndex slot, Incarnation incarnation, bool succeeded) {
  Handle(control::RequestServed{slot, incarnation, succeeded});
}

void ControllerProcess::OnSlotAdded(SlotIndex slot) {
  Handle(control::SlotRequested{"", control::SlotAction::kAdd, slot});
}
void ControllerProcess::OnSlotRemoved(SlotIndex slot) {
  Handle(control::SlotRequested{"", control::SlotAction::kRemove, slot, kDrainGrace});
}

// ---- the client

void ControllerProcess::Request(const std::string& request_id, const std::string& source, Duration budget,
                                std::uint64_t asking) {
  world().Note("controller ", number_, " <- sync ", request_id);
  waiting_.emplace(request_id, asking);
  Handle(control::SyncRequested{request_id, source, budget});
}

void ControllerProcess::Cancel(const std::string& request_id) { Handle(control::SyncCancelled{request_id}); }

void ControllerProcess::Carry(const control::SyncAnswered& effect) {
  world().Note("controller ", number_, " answers ", effect.request_id, ": ", effect.status.ToString());
  world().checks().OnTold(*this, effect);
  const auto [begin, end] = waiting_.equal_range(effect.request_id);
  for (auto asking = begin; asking != end; ++asking) {
    world().client().Answer(*this, asking->second, effect);
  }
  waiting_.erase(begin, end);
}

}  // namespace refit::sim
