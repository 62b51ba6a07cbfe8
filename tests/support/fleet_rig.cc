// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/fleet_rig.h"

#include <algorithm>

#include "refit/base/str.h"

namespace refit::testing {

namespace {

constexpr RunId kRun{{7, 7}};
constexpr Term kTermFloor(3);
constexpr Term kTerm(4);
constexpr std::uint64_t kTensorSize = 10;

std::shared_ptr<const weights::Manifest> MakeManifest(std::uint64_t tensors) {
  std::vector<weights::TensorSpec> specs;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    specs.push_back({StrCat("t", i), weights::DType::kUint8, {static_cast<std::int64_t>(kTensorSize)}});
  }
  return std::make_shared<const weights::Manifest>(*weights::Manifest::Make(std::move(specs)));
}

}  // namespace

FleetRig::FleetRig(RigOptions options) : options_(options) {
  control::ControllerOptions controller;
  controller.run = kRun;
  controller.term = kTerm;
  controller.profile = options_.profile;
  controller.keep_lease = options_.keep_lease;
  controller.command_budget = std::chrono::seconds(10);
  controller.append_deadline = 10 * options_.budget;
  for (std::uint32_t slot = 0; slot < options_.engines; ++slot) {
    controller.slots.emplace_back(slot);
  }
  for (std::uint32_t rank = 0; rank < options_.policies; ++rank) {
    controller.policy_ranks.emplace_back(rank);
  }
  controller_ = std::make_unique<control::Controller>(controller);
  for (std::uint32_t rank = 0; rank < options_.policies; ++rank) {
    NewPolicy(rank);
  }
  for (std::uint32_t slot = 0; slot < options_.engines; ++slot) {
    Launch(slot);
  }
  RunUntilQuiet();
}

void FleetRig::NewPolicy(std::uint32_t rank) {
  PolicyBox& box = policies_[PolicyRank(rank)];
  box = PolicyBox();
  box.incarnation = Incarnation{{2, next_life_++}};
  box.agent = std::make_unique<peer::PolicyAgent>(
      peer::PolicyAgentOptions{PolicyRank(rank), box.incarnation, kRun, kTermFloor});
  box.manifest = MakeManifest(options_.loads * options_.tensors_per_load);
  box.loads = options_.loads;
  box.digest = Digest{{5, 5}};
  ToController(control::PolicyRegistered{{PolicyRank(rank), box.incarnation, StrCat("policy:", rank)}});
}

void FleetRig::JoinPolicy(std::uint32_t rank) {
  NewPolicy(rank);
  RunUntilQuiet();
}

void FleetRig::Launch(std::uint32_t slot) {
  AgentBox& box = boxes_[SlotIndex(slot)];
  for (const std::string& violation : box.engine.violations()) {
    violations_.push_back(StrCat("engine ", slot, ": ", violation));
  }
  box = AgentBox();
  box.incarnation = Incarnation{{1, next_life_++}};
  box.engine = EngineDouble(options_.family, options_.loads);
  peer::EngineAgentOptions agent;
  agent.slot = SlotIndex(slot);
  agent.incarnation = box.incarnation;
  agent.run = kRun;
  agent.term_floor = kTermFloor;
  agent.family = options_.family;
  agent.profile = options_.profile;
  agent.tp_size = options_.tp_size;
  agent.attached = options_.attached;
  agent.expected = MakeManifest(options_.loads * options_.tensors_per_load);
  agent.call_deadline = std::chrono::seconds(5);
  agent.update_deadline = std::chrono::seconds(5);
  agent.flush_retry_interval = std::chrono::milliseconds(500);
  box.agent = std::make_unique<peer::EngineAgent>(agent);
  sync::EngineMember member{SlotIndex(slot), box.incarnation, options_.tp_size, box.agent->residue()};
  ToController(control::AgentRegistered{member});
}

// ---- running

void FleetRig::Request(const std::string& request_id) {
  ToController(control::SyncRequested{request_id, "", options_.budget});
}

control::SyncAnswered FleetRig::Sync(const std::string& request_id) {
  answers_.clear();
  Request(request_id);
  Run();
  if (answers_.size() != 1) {
    violations_.push_back(StrCat(answers_.size(), " answers to one sync"));
    return {request_id, Internal("no answer"), std::nullopt};
  }
  return answers_.front();
}

void FleetRig::RunUntilQuiet() {
  while (!queue_.empty()) {
    const std::function<void()> event = std::move(queue_.front());
    queue_.pop_front();
    event();
  }
}

bool FleetRig::Step() {
  RunUntilQuiet();
  Instant next = controller_->next_deadline();
  for (const auto& [slot, box] : boxes_) {
    next = std::min(next, box.agent->next_deadline());
  }
  for (const auto& [rank, box] : policies_) {
    next = std::min(next, box.agent->next_deadline());
  }
  if (next == kNever) {
    return false;
  }
  now_ = std::max(now_, next);
  for (auto& [slot, box] : boxes_) {
    if (box.agent->next_deadline() <= now_) {
      peer::EngineAgentEffects effects;
      box.agent->HandleDeadline(now_, effects);
      CarryOut(slot, effects);
    }
  }
  for (auto& [rank, box] : policies_) {
    if (box.agent->next_deadline() <= now_) {
      peer::PolicyAgentEffects effects;
      box.agent->HandleDeadline(now_, effects);
      CarryOut(rank, effects);
    }
  }
  RunUntilQuiet();
  if (controller_->next_deadline() <= now_) {
    control::ControllerEffects effects;
    controller_->HandleDeadline(now_, effects);
    CarryOut(effects);
  }
  return true;
}

void FleetRig::Run() {
  int steps = 0;
  while (Step()) {
    if (++steps > 10000) {
      violations_.emplace_back("time goes on for ever");
      return;
    }
  }
}

std::vector<std::string> FleetRig::Violations() const {
  std::vector<std::string> all = violations_;
  for (const auto& [slot, box] : boxes_) {
    for (const std::string& violation : box.engine.violations()) {
      all.push_back(StrCat("engine ", slot, ": ", violation));
    }
  }
  return all;
}

// ---- events

void FleetRig::Deliver(const control::ControllerEvent& event) { ToController(event); }

void FleetRig::ToController(const control::ControllerEvent& event) {
  Post([this, event] {
    control::ControllerEffects effects;
    controller_->Handle(event, now_, effects);
    CarryOut(effects);
  });
}

void FleetRig::ToAgent(SlotIndex slot, Incarnation incarnation, const peer::EngineAgentEvent& event) {
  Post([this, slot, incarnation, event] {
    AgentBox& box = boxes_.at(slot);
    if (box.incarnation == incarnation) {
      peer::EngineAgentEffects effects;
      box.agent->Handle(event, now_, effects);
      CarryOut(slot, effects);
    }
  });
}

void FleetRig::ToPolicy(PolicyRank rank, const peer::PolicyAgentEvent& event) {
  Post([this, rank, event] {
    PolicyBox& box = policies_.at(rank);
    if (!box.dead) {
      peer::PolicyAgentEffects effects;
      box.agent->Handle(event, now_, effects);
      CarryOut(rank, effects);
    }
  });
}

// ---- losses

void FleetRig::LoseAgent(std::uint32_t slot) {
  AgentBox& box = boxes_.at(SlotIndex(slot));
  box.engine.Kill();
  ToController(control::AgentGone{SlotIndex(slot), box.incarnation, Unavailable("connection lost"), true});
  Detach(SlotIndex(slot));
}

void FleetRig::LosePolicy(std::uint32_t rank) {
  PolicyBox& box = policies_.at(PolicyRank(rank));
  box.dead = true;
  box.source_open = false;
  ToController(control::PolicyGone{PolicyRank(rank), box.incarnation, Unavailable("connection lost")});
  if (box.send.has_value()) {
    for (const SlotIndex slot : box.busy) {
      AgentBox& receiver = boxes_.at(slot);
      if (receiver.transfer.has_value()) {
        ToAgent(slot, receiver.incarnation,
                peer::TransferFailed{receiver.transfer->stamp.attempt,
                                     Unavailable(StrCat("policy rank ", rank, " is gone"))});
      }
    }
    box.send.reset();
  }
}

void FleetRig::Release(std::uint32_t slot) {
  sync::AgentCommand command;
  command.stamp = {kRun, kTermFloor, CommandSeq(1), {}, WeightVersion(0), incarnation(slot)};
  command.kind = sync::AgentCommandKind::kRelease;
  command.budget = std::chrono::seconds(5);
  ToAgent(SlotIndex(slot), incarnation(slot), peer::CommandArrived{command});
  RunUntilQuiet();
}

// ---- effects

void FleetRig::CarryOut(const control::ControllerEffects& effects) {
  for (const control::ControllerEffect& effect : effects) {
    if (const auto* agent = std::get_if<sync::SendToAgent>(&effect)) {
      sent_[agent->slot].push_back(agent->command);
      if (!on_agent_command || on_agent_command(agent->slot, agent->command)) {
        ToAgent(agent->slot, agent->command.stamp.incarnation, peer::CommandArrived{agent->command});
      }
    } else if (const auto* policy = std::get_if<sync::SendToPolicy>(&effect)) {
      if (!on_policy_command || on_policy_command(policy->rank, policy->command)) {
        ToPolicy(policy->rank, peer::PolicyCommandArrived{policy->command});
      }
    } else if (const auto* append = std::get_if<control::Append>(&effect)) {
      const auto* commit = std::get_if<control::CommitRecord>(&append->record);
      if (commit != nullptr) {
        CheckCommit(*commit);
        commits_.push_back(*commit);
      }
      if (commit == nullptr || answer_commit) {
        ToController(control::Appended{append->append, commit == nullptr ? OkStatus() : commit_status});
      }
    } else if (const auto* answered = std::get_if<control::SyncAnswered>(&effect)) {
      answers_.push_back(*answered);
    } else if (const auto* stop = std::get_if<control::Stop>(&effect)) {
      stopped_ = stop->exit_code;
    }
  }
}

// RX-COMMIT-01, -03: members hold the whole set and are paused; everybody else is out of traffic.
void FleetRig::CheckCommit(const control::CommitRecord& commit) {
  for (const auto& [slot, box] : boxes_) {
    const bool member = std::any_of(commit.members.begin(), commit.members.end(),
                                    [slot = slot](const control::CommitMember& each) { return each.slot == slot; });
    const sync::Residue& residue = box.agent->residue();
    if (member && (residue.kind != sync::ResidueKind::kComplete || residue.version != commit.version)) {
      violations_.push_back(StrCat("engine ", slot, " is a member with residue ", ToString(residue)));
    }
    if (box.engine.generates()) {
      violations_.push_back(StrCat("engine ", slot, " generates while version ", commit.version, " is decided"));
    }
  }
}

void FleetRig::CarryOut(SlotIndex slot, const peer::EngineAgentEffects& effects) {
  AgentBox& box = boxes_.at(slot);
  for (const peer::EngineAgentEffect& effect : effects) {
    if (const auto* call = std::get_if<peer::CallEngine>(&effect)) {
      log_.push_back(StrCat(slot, " ", ToString(call->operation)));
      Answer(slot, call->call, box.engine.Call(call->operation, call->version));
    } else if (const auto* update = std::get_if<peer::PostUpdate>(&effect)) {
      log_.push_back(StrCat(slot, " update"));
      if (on_load) {
        on_load(slot, box.next_load);
      }
      Answer(slot, update->call, box.engine.Update(box.next_load, box.transfer->stamp.version, update->label));
      ++box.next_load;
    } else if (const auto* link = std::get_if<peer::OpenLink>(&effect)) {
      opened_links_.push_back({slot, link->source});
      const Status status = on_link ? on_link(slot, link->source) : OkStatus();
      ToAgent(slot, box.incarnation, peer::LinkOpened{link->link, status});
    } else if (std::holds_alternative<peer::CloseLink>(effect)) {
      ++closed_links_;
    } else if (const auto* start = std::get_if<peer::StartTransfer>(&effect)) {
      box.transfer = *start;
      box.next_load = 0;
      Feed(slot);
    } else if (const auto* stop = std::get_if<peer::StopTransfer>(&effect)) {
      Detach(slot);
      ToAgent(slot, box.incarnation, peer::TransferFenced{stop->attempt});
    } else if (std::holds_alternative<peer::KillEngine>(effect)) {
      log_.push_back(StrCat(slot, " kill"));
      box.engine.Kill();
      Detach(slot);
    } else {
      const sync::AgentReply reply = std::get<peer::SendReply>(effect).reply;
      if (!on_agent_reply || on_agent_reply(slot, reply)) {
        ToController(sync::SessionEvent{sync::AgentReplied{slot, reply}});
      }
    }
  }
}

void FleetRig::Answer(SlotIndex slot, std::uint64_t call, const sync::Answer& answer) {
  AgentBox& box = boxes_.at(slot);
  ToAgent(slot, box.incarnation, peer::EngineAnswered{call, answer});
  Post([this, slot] { Feed(slot); });
}

// One load at a time, once every sender of the engine is sending.
void FleetRig::Feed(SlotIndex slot) {
  AgentBox& box = boxes_.at(slot);
  if (!box.transfer.has_value()) {
    return;
  }
  std::size_t loads = options_.loads;
  for (const sync::StreamSource& stream : box.transfer->streams) {
    const PolicyBox& policy = policies_.at(stream.policy);
    if (!policy.send.has_value() || policy.send->stamp.attempt != box.transfer->stamp.attempt) {
      return;
    }
    loads = std::min(loads, policy.loads);
  }
  const AttemptId attempt = box.transfer->stamp.attempt;
  if (box.next_load < loads) {
    return ToAgent(slot, box.incarnation, peer::LoadReady{attempt});
  }
  sync::TransferTotals totals;
  totals.loads = loads;
  totals.tensors = loads * options_.tensors_per_load * options_.tp_size;
  totals.bytes = totals.tensors * kTensorSize;
  ToAgent(slot, box.incarnation, peer::TransferEnded{attempt, totals});
  Detach(slot);
}

void FleetRig::Detach(SlotIndex slot) {
  boxes_.at(slot).transfer.reset();
  for (auto& [rank, policy] : policies_) {
    if (policy.busy.erase(slot) > 0) {
      EndSendIfDone(rank);
    }
  }
}

void FleetRig::EndSendIfDone(PolicyRank rank) {
  PolicyBox& box = policies_.at(rank);
  if (!box.send.has_value() || !box.busy.empty() || block_send) {
    return;
  }
  const std::uint64_t tensors = box.loads * options_.tensors_per_load;
  ToPolicy(rank, peer::SendEnded{
                     box.send->stamp.attempt, OkStatus(), box.digest, {tensors, box.loads, tensors * kTensorSize}});
  box.send.reset();
}

void FleetRig::CarryOut(PolicyRank rank, const peer::PolicyAgentEffects& effects) {
  PolicyBox& box = policies_.at(rank);
  for (const peer::PolicyAgentEffect& effect : effects) {
    if (const auto* open = std::get_if<peer::OpenSource>(&effect)) {
      box.source_open = true;
      ToPolicy(rank, peer::SourceOpened{open->attempt, OkStatus(), box.manifest});
    } else if (const auto* start = std::get_if<peer::StartSend>(&effect)) {
      box.send = *start;
      box.drained = start->receivers.empty();
      box.busy.clear();
      for (const sync::Receiver& receiver : start->receivers) {
        if (!boxes_.at(receiver.slot).engine.dead()) {  // else its link does not come up, and the host detaches it
          box.busy.insert(receiver.slot);
        }
      }
      for (const SlotIndex slot : std::set<SlotIndex>(box.busy)) {
        Feed(slot);
      }
      EndSendIfDone(rank);
    } else if (std::holds_alternative<peer::StopSend>(effect)) {
      box.busy.clear();
      EndSendIfDone(rank);
    } else if (std::holds_alternative<peer::CloseSource>(effect)) {
      box.source_open = false;
    } else {
      ToController(sync::SessionEvent{sync::PolicyReplied{rank, std::get<peer::SendPolicyReply>(effect).reply}});
    }
  }
}

}  // namespace refit::testing
