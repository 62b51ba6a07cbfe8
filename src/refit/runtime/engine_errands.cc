// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/engine_errands.h"

#include <chrono>
#include <utility>

#include "refit/base/str.h"
#include "refit/runtime/reply_desk.h"

namespace refit::runtime {
namespace {

constexpr Duration kAskDeadline = std::chrono::milliseconds(500);  // of whether an agent's address refuses connections

Status NoAgent(SlotIndex slot) { return Unavailable(StrCat("no agent of engine ", slot, " is registered")); }

}  // namespace

EngineErrands::EngineErrands(RunId run, Term term, Duration kill_budget, Fleet fleet)
    : run_(run), term_(term), kill_budget_(kill_budget), fleet_(std::move(fleet)) {}

rpc::EngineErrand EngineErrands::Make(rpc::ErrandKind kind, Incarnation incarnation, Duration budget) const {
  return {.run = run_, .term = term_, .kind = kind, .incarnation = incarnation, .budget = budget};
}

// Somebody has heard a later controller: this one may not act any more (RX-LEAD-04).
void EngineErrands::Learn(const rpc::ErrandReply& reply) {
  if (reply.highest_term > term_) {
    fleet_.post(control::TermChecked{reply.highest_term});
  }
}

// ---- launch

void EngineErrands::Carry(const control::LaunchEngine& effect) {
  waiting_.With([&effect](auto& waiting) { waiting.insert_or_assign(effect.slot, effect); });
  TryLaunch(effect.slot);
}

void EngineErrands::OnAgent(const sync::EngineMember& member) {
  members_.With([&member](auto& members) { members.insert_or_assign(member.slot, member); });
  if (!member.incarnation.is_zero()) {  // it has launched one
    waiting_.With([&member](auto& waiting) { waiting.erase(member.slot); });
  }
  TryLaunch(member.slot);
}

void EngineErrands::TryLaunch(SlotIndex slot) {
  const auto agent = fleet_.find(slot);
  if (agent == nullptr) {
    return;
  }
  const auto taken = waiting_.With([slot](auto& waiting) { return waiting.extract(slot); });
  if (taken.empty()) {
    return;
  }
  const control::LaunchEngine effect = taken.mapped();
  agent->Run(Make(rpc::ErrandKind::kLaunch, {}, effect.budget), effect.budget + 2 * kReplyMargin,
             [this, effect, address = agent->address()](const Result<rpc::ErrandReply>& reply) {
               OnLaunch(effect, address, reply);
             });
}

void EngineErrands::OnLaunch(const control::LaunchEngine& effect, const std::string& address,
                             const Result<rpc::ErrandReply>& reply) {
  if (reply.has_value() && reply->status.ok()) {
    // It has registered, perhaps before it was asked.
    const auto member = members_.With([&effect](auto& members) { return members[effect.slot]; });
    if (!member.incarnation.is_zero()) {
      fleet_.post(control::AgentRegistered{member});
    }
    return;
  }
  if (reply.has_value()) {
    Learn(*reply);
    return fleet_.post(control::LaunchFailed{effect.slot, effect.launch, reply->status});
  }
  fleet_.on_silence(effect.slot);
  // Cancelled: by the registration of another agent, which launches in its stead.
  if (reply.status().code() != StatusCode::kCancelled && !rpc::NobodyListens(address, kAskDeadline)) {
    return fleet_.post(control::LaunchFailed{effect.slot, effect.launch, reply.status()});
  }
  waiting_.With([&effect](auto& waiting) { waiting.try_emplace(effect.slot, effect); });
  if (const auto agent = fleet_.find(effect.slot); agent != nullptr && agent->address() != address) {
    TryLaunch(effect.slot);
  }
}

// ---- the end of a life

void EngineErrands::Carry(const control::ShutDownEngine& effect) {
  const control::ShutDownEnded ended{effect.slot, effect.incarnation};
  const auto agent = fleet_.find(effect.slot);
  if (agent == nullptr) {
    return fleet_.post(ended);
  }
  agent->Run(Make(rpc::ErrandKind::kShutDown, effect.incarnation, effect.deadline), effect.deadline + kReplyMargin,
             [this, ended](const Result<rpc::ErrandReply>& reply) {
               if (reply.has_value()) {
                 Learn(*reply);
               } else {
                 fleet_.on_silence(ended.slot);
               }
               fleet_.post(ended);
             });
}

void EngineErrands::Carry(const control::KillEngine& effect) {
  control::KillEnded ended{effect.slot, effect.incarnation, false};
  if (effect.incarnation.is_zero()) {
    waiting_.With([&effect](auto& waiting) { waiting.erase(effect.slot); });
  }
  const auto agent = fleet_.find(effect.slot);
  if (agent == nullptr) {
    // Nobody launched anything for this controller. A life with a name is another controller's: its agent will say so.
    ended.confirmed = effect.incarnation.is_zero();
    return fleet_.post(ended);
  }
  agent->Run(Make(rpc::ErrandKind::kKill, effect.incarnation, kill_budget_), kill_budget_ + kReplyMargin,
             [this, ended, address = agent->address()](const Result<rpc::ErrandReply>& reply) {
               control::KillEnded said = ended;
               if (reply.has_value()) {
                 Learn(*reply);
                 said.confirmed = reply->status.ok() && reply->gone;
               } else {
                 fleet_.on_silence(ended.slot);
                 // An agent that is gone leaves no engine: its supervisor ends what it owned (RC-KILL-06).
                 said.confirmed = rpc::NobodyListens(address, kAskDeadline);
               }
               fleet_.post(said);
             });
}

// ---- health

void EngineErrands::Carry(const control::ProbeEngine& effect) {
  control::ProbeEnded ended{effect.slot, effect.incarnation, effect.probe, NoAgent(effect.slot)};
  const auto agent = fleet_.find(effect.slot);
  if (agent == nullptr) {
    return fleet_.post(ended);
  }
  // The agent's own bound is the timeout; twice that is the bound of everything in between (RC-MON-02).
  agent->Run(Make(rpc::ErrandKind::kProbe, effect.incarnation, effect.timeout), 2 * effect.timeout,
             [this, ended, address = agent->address()](const Result<rpc::ErrandReply>& reply) {
               control::ProbeEnded said = ended;
               said.status = reply.has_value() ? reply->status : reply.status();
               if (reply.has_value()) {
                 Learn(*reply);
               } else {
                 fleet_.on_silence(ended.slot);
                 if (rpc::NobodyListens(address, kAskDeadline)) {
                   fleet_.post(control::AgentGone{ended.slot, ended.incarnation, reply.status(), true});
                 }
               }
               fleet_.post(said);
             });
}

void EngineErrands::Carry(const control::DrainEngine& effect) {
  control::DrainEnded ended{effect.slot, effect.incarnation, NoAgent(effect.slot)};
  const auto agent = fleet_.find(effect.slot);
  if (agent == nullptr) {
    return fleet_.post(ended);
  }
  agent->Run(Make(rpc::ErrandKind::kDrain, effect.incarnation, effect.budget), effect.budget + kReplyMargin,
             [this, ended](const Result<rpc::ErrandReply>& reply) {
               control::DrainEnded said = ended;
               said.status = reply.has_value() ? reply->status : reply.status();
               if (reply.has_value()) {
                 Learn(*reply);
               }
               fleet_.post(said);
             });
}

}  // namespace refit::runtime
