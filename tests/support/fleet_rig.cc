// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/fleet_rig.h"

#include <algorithm>

#include "refit/base/str.h"

namespace refit::testing {

namespace {

constexpr RunId kRun{{7, 7}};
constexpr Term kTermFloor(3);
constexpr Term kFirstTerm(4);
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
  Write(control::RunRecord{kRun});
  Write(control::TermRecord{term_});
  controller_ = std::make_unique<control::Controller>(MakeOptions(term_));
  control::ControllerEffects effects;
  controller_->Start(now_, effects);
  CarryOut(effects, term_);
  for (std::uint32_t rank = 0; rank < options_.policies; ++rank) {
    NewPolicy(rank);
  }
  for (std::uint32_t slot = 0; slot < options_.engines && !options_.use_fault_tolerance; ++slot) {
    Launch(slot);
  }
  RunUntilQuiet();
}

control::ControllerOptions FleetRig::MakeOptions(Term term) const {
  control::ControllerOptions controller;
  controller.run = kRun;
  controller.term = term;
  controller.profile = options_.profile;
  controller.keep_lease = options_.keep_lease;
  controller.command_budget = std::chrono::seconds(10);
  controller.append_deadline = options_.append_deadline;
  controller.use_fault_tolerance = options_.use_fault_tolerance;
  controller.use_router = options_.use_router;
  controller.term_check_interval = std::chrono::seconds(options_.use_router ? 1 : 0);  // else nobody takes over
  controller.needs_offload = options_.needs_offload;
  controller.catch_up_budget = options_.catch_up_budget;
  controller.min_rate = options_.min_rate;
  controller.redo_safe = options_.redo_safe;
  controller.health.interval = std::chrono::seconds(1);
  controller.health.timeout = std::chrono::seconds(2);
  controller.health.first_wait = std::chrono::seconds(3);
  controller.restarts = {3, std::chrono::minutes(10), std::chrono::seconds(1), std::chrono::seconds(60)};
  controller.launch_budget = std::chrono::seconds(20);
  for (std::uint32_t slot = 0; slot < options_.engines; ++slot) {
    controller.slots.emplace_back(slot);
  }
  for (std::uint32_t rank = 0; rank < options_.policies; ++rank) {
    controller.policy_ranks.emplace_back(rank);
  }
  return controller;
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
  RegisterPolicy(rank);
}

void FleetRig::RegisterPolicy(std::uint32_t rank) {
  ToController(control::PolicyRegistered{
      {PolicyRank(rank), policies_.at(PolicyRank(rank)).incarnation, StrCat("policy:", rank), options_.retains}});
}

void FleetRig::BreakConnection(std::uint32_t rank) {
  ToController(control::PolicyGone{PolicyRank(rank), policies_.at(PolicyRank(rank)).incarnation,
                                   Unavailable("connection lost")});
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
  // RX-ID-03. Lives of the first controller have one below, so that Release() has a term of its own.
  agent.term_floor = term_ == kFirstTerm ? kTermFloor : term_;
  agent.family = options_.family;
  agent.profile = options_.profile;
  agent.tp_size = options_.tp_size;
  agent.attached = options_.attached;
  agent.expected = MakeManifest(options_.loads * options_.tensors_per_load);
  agent.call_deadline = std::chrono::seconds(5);
  agent.update_deadline = std::chrono::seconds(5);
  agent.flush_retry_interval = std::chrono::milliseconds(500);
  box.agent = std::make_unique<peer::EngineAgent>(agent);
  Register(slot);
}

void FleetRig::Register(std::uint32_t slot) {
  const AgentBox& box = boxes_.at(SlotIndex(slot));
  const bool serving = box.agent->phase() == peer::AgentPhase::kServing && !box.engine.paused();
  ToController(control::AgentRegistered{{SlotIndex(slot), box.incarnation, options_.tp_size, box.agent->residue(),
                                         serving, box.agent->attempt(), box.agent->links(), options_.attached}});
}

// ---- running

void FleetRig::Request(const std::string& request_id) {
  ++asked_;
  ToController(control::SyncRequested{request_id, "", options_.budget});
}

control::SyncAnswered FleetRig::Sync(const std::string& request_id) {
  answers_.clear();
  Request(request_id.empty() ? StrCat("sync-", asked_ + 1) : request_id);
  Run();
  if (answers_.size() != 1) {
    violations_.push_back(StrCat(answers_.size(), " answers to one sync"));
    return {request_id, Internal("no answer"), std::nullopt};
  }
  return answers_.front();
}

void FleetRig::RunUntilQuiet() {
  for (int events = 0; !queue_.empty(); ++events) {
    if (events > 100000) {
      violations_.emplace_back("one instant goes on for ever");
      return queue_.clear();
    }
    const std::function<void()> event = std::move(queue_.front());
    queue_.pop_front();
    event();
    CheckTraffic("all the same");
  }
}

Instant FleetRig::NextDeadline() const {
  Instant next = controller_->next_deadline();
  if (former_ != nullptr && former_thawed_) {
    next = std::min(next, former_->next_deadline());
  }
  for (const auto& [slot, box] : boxes_) {
    next = std::min(next, box.agent->next_deadline());
  }
  for (const auto& [rank, box] : policies_) {
    next = std::min(next, box.agent->next_deadline());
  }
  return next;
}

bool FleetRig::Step() {
  RunUntilQuiet();
  const Instant next = NextDeadline();
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
  HandDeadline(*controller_, term_);
  if (former_ != nullptr && former_thawed_) {
    HandDeadline(*former_, Term(term_.value() - 1));
  }
  RunUntilQuiet();
  return true;
}

void FleetRig::HandDeadline(control::Controller& controller, Term term) {
  if (controller.next_deadline() <= now_) {
    control::ControllerEffects effects;
    controller.HandleDeadline(now_, effects);
    CarryOut(effects, term);
  }
}

void FleetRig::Run() {
  const bool goes_on = options_.use_fault_tolerance || options_.use_router;
  int steps = 0;
  RunUntilQuiet();
  while ((!goes_on || answered_ < asked_) && Step()) {
    if (++steps > 5000) {
      violations_.emplace_back("time goes on for ever");
      return;
    }
  }
  RunUntilQuiet();
}

bool FleetRig::RunUntil(const std::function<bool()>& holds) {
  for (int tenths = 0; tenths < 600 && !holds(); ++tenths) {
    RunFor(std::chrono::milliseconds(100));
  }
  return holds();
}

void FleetRig::RunFor(Duration time) {
  const Instant end = now_ + time;
  RunUntilQuiet();
  for (int steps = 0; NextDeadline() <= end && Step(); RunUntilQuiet()) {
    if (++steps > 5000) {
      violations_.emplace_back("time stands still");
      return;
    }
  }
  now_ = std::max(now_, end);
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

void FleetRig::ToController(const control::ControllerEvent& event) { ToSender(event, term_); }

void FleetRig::ToSender(const control::ControllerEvent& event, Term term) {
  Post([this, event, term] {
    control::Controller* const controller = term == term_    ? controller_.get()
                                            : former_thawed_ ? former_.get()
                                                             : nullptr;
    if (controller != nullptr) {
      control::ControllerEffects effects;
      controller->Handle(event, now_, effects);
      CarryOut(effects, term);
    }
  });
}

void FleetRig::ToAgent(SlotIndex slot, Incarnation incarnation, const peer::EngineAgentEvent& event) {
  Post([this, slot, incarnation, event] {
    AgentBox& box = boxes_.at(slot);
    const bool arrives = !box.unreachable || !std::holds_alternative<peer::CommandArrived>(event);
    if (box.incarnation == incarnation && arrives) {
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

void FleetRig::Partition(std::uint32_t slot) {
  AgentBox& box = boxes_.at(SlotIndex(slot));
  box.unreachable = true;
  ToController(control::AgentGone{SlotIndex(slot), box.incarnation, Unavailable("connection lost"), false});
}

void FleetRig::KillServer(std::uint32_t slot) {
  AgentBox& box = boxes_.at(SlotIndex(slot));
  box.engine.Kill();
  ToAgent(SlotIndex(slot), box.incarnation, peer::EngineDied{Unavailable("signal 9")});
}

void FleetRig::BreakLink(std::uint32_t slot) {
  const AgentBox& box = boxes_.at(SlotIndex(slot));
  ToAgent(SlotIndex(slot), box.incarnation,
          peer::TransferFailed{box.agent->attempt(), Unavailable("link down", "look at the network")});
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

void FleetRig::CarryOut(const control::ControllerEffects& effects, Term term) {
  for (const control::ControllerEffect& effect : effects) {
    if (const auto* agent = std::get_if<sync::SendToAgent>(&effect)) {
      trace_.push_back(StrCat(agent->slot, " ", ToString(agent->command.kind)));
      sent_[agent->slot].push_back(agent->command);
      if (!on_agent_command || on_agent_command(agent->slot, agent->command)) {
        ToAgent(agent->slot, agent->command.stamp.incarnation, peer::CommandArrived{agent->command});
      }
    } else if (const auto* policy = std::get_if<sync::SendToPolicy>(&effect)) {
      trace_.push_back(StrCat("policy ", policy->rank, " ", ToString(policy->command.kind)));
      if (!on_policy_command || on_policy_command(policy->rank, policy->command)) {
        ToPolicy(policy->rank, peer::PolicyCommandArrived{policy->command});
      }
    } else if (const auto* ended = std::get_if<control::ShutdownAnswered>(&effect)) {
      trace_.push_back(StrCat("shutdown: ", ended->status.ToString()));
    } else if (const auto* answered = std::get_if<control::SyncAnswered>(&effect)) {
      trace_.emplace_back("answer");
      ++answered_;
      answers_.push_back(*answered);
    } else {
      CarryOutWorld(effect, term);
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
    if (box.engine.generates() && !options_.use_router) {  // else CheckTraffic says who can be reached
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
      if (!box.unreachable && (!on_agent_reply || on_agent_reply(slot, reply))) {
        ToSender(sync::SessionEvent{sync::AgentReplied{slot, reply}}, reply.stamp.term);
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
  if (!box.transfer.has_value() || hold_loads) {
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
      const sync::PolicyReply reply = std::get<peer::SendPolicyReply>(effect).reply;
      ToSender(sync::SessionEvent{sync::PolicyReplied{rank, reply}}, reply.stamp.term);
    }
  }
}

}  // namespace refit::testing
