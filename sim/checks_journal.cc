// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <variant>

#include "refit/base/str.h"
#include "sim/checks.h"
#include "sim/controller_process.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {

// ---- what is written

void Checks::OnRow(const Disk::Row& row, Term current) {
  if (row.writer != current) {
    world_.Report(Checker::kInv4, StrCat("a controller of term ", row.writer, " wrote ", control::NameOf(row.record),
                                         " under term ", current));
  }
  if (const auto* commit = std::get_if<control::CommitRecord>(&row.record)) {
    if (commit->version <= committed_version()) {
      world_.Report(Checker::kInv3,
                    StrCat("version ", commit->version, " is committed after version ", committed_version()));
    }
    const auto content = world_.weights().WithRoot(commit->digest);
    if (!content.has_value()) {
      world_.Report(Checker::kInv3, StrCat("version ", commit->version, " is committed with a digest of nothing"));
    }
    committed_.push_back({world_.now(), content.value_or(kNoContent), commit->version});
    for (const Router::Entry& entry : world_.router().entries()) {
      CheckRouted(entry);
    }
  } else if (const auto* outcome = std::get_if<control::OutcomeRecord>(&row.record)) {
    if (++outcomes_[outcome->request_id] > 1) {
      world_.Report(Checker::kInv7, StrCat("request ", outcome->request_id, " has two outcomes"));
    }
  }
}

// S6: nobody whose loss this controller has handled.
void Checks::OnAppend(const ControllerProcess& process, const control::Record& record) {
  if (superseded_.contains(process.number())) {
    world_.Report(Checker::kInv4, StrCat("controller ", process.number(), " knows that it is superseded and appends ",
                                         control::NameOf(record)));
  }
  const auto* commit = std::get_if<control::CommitRecord>(&record);
  if (commit == nullptr) {
    return;
  }
  for (const control::CommitMember& member : commit->members) {
    if (lost_[process.number()].contains(member.incarnation)) {
      world_.Report(Checker::kS6, StrCat("engine ", member.slot, " life ", member.incarnation.low,
                                         " is a member of version ", commit->version, " although it was lost"));
    }
  }
}

void Checks::OnEvent(const ControllerProcess& process, const control::ControllerEvent& event) {
  std::set<Incarnation>& lost = lost_[process.number()];
  if (const auto* registered = std::get_if<control::AgentRegistered>(&event)) {
    lost.erase(registered->member.incarnation);
  } else if (const auto* gone = std::get_if<control::AgentGone>(&event)) {
    lost.insert(gone->incarnation);
  } else if (const auto* session = std::get_if<sync::SessionEvent>(&event)) {
    if (const auto* agent = std::get_if<sync::AgentLost>(session)) {
      lost.insert(agent->incarnation);
    } else if (const auto* reply = std::get_if<sync::AgentReplied>(session)) {
      if (reply->reply.highest_term > process.term()) {
        superseded_.insert(process.number());
      }
    } else if (const auto* policy = std::get_if<sync::PolicyReplied>(session)) {
      if (policy->reply.highest_term > process.term()) {
        superseded_.insert(process.number());
      }
    }
  }
}

// ---- what is told

// S8: nobody is told to serve what is not written down.
void Checks::OnSent(const ControllerProcess& process, SlotIndex slot, const sync::AgentCommand& command) {
  if (superseded_.contains(process.number())) {
    world_.Report(Checker::kInv4, StrCat("controller ", process.number(), " knows that it is superseded and sends ",
                                         ToString(command.kind), " to engine ", slot));
  }
  if (command.kind != sync::AgentCommandKind::kActivate) {
    return;
  }
  const control::CommitRecord* const commit = world_.disk().FindCommit(command.stamp.version);
  if (commit == nullptr || commit->digest != command.digest) {
    world_.Report(Checker::kS8, StrCat("engine ", slot, " is told to serve version ", command.stamp.version,
                                       ", which is not committed with that digest"));
    return;
  }
  const auto member = [&](const control::CommitMember& each) {
    return each.slot == slot && each.incarnation == command.stamp.incarnation;
  };
  const auto caught_up = [&](const Disk::Row& row) {
    const auto* record = std::get_if<control::SlotRecord>(&row.record);
    return record != nullptr && record->slot == slot && record->incarnation == command.stamp.incarnation &&
           record->state == fleet::SlotState::kServing;
  };
  const std::vector<Disk::Row>& rows = world_.disk().rows();
  if (std::none_of(commit->members.begin(), commit->members.end(), member) &&
      std::none_of(rows.begin(), rows.end(), caught_up)) {
    world_.Report(Checker::kS8,
                  StrCat("engine ", slot, " life ", command.stamp.incarnation.low, " is told to serve version ",
                         command.stamp.version, " without a record that it may"));
  }
}

void Checks::OnTold(const ControllerProcess& process, const control::SyncAnswered& answer) {
  static_cast<void>(process);
  const bool finished = answer.outcome.has_value() && !answer.outcome->in_doubt;
  const bool committed = answer.status.ok() || (answer.outcome.has_value() && answer.outcome->committed);
  if (!finished && !committed) {
    return;  // refused, or nobody knows
  }
  const control::OutcomeRecord* const written = world_.disk().FindOutcome(answer.request_id);
  if (written == nullptr) {
    world_.Report(Checker::kInv7, StrCat("request ", answer.request_id, " is answered before its outcome is durable"));
  } else if (written->committed != committed) {
    world_.Report(Checker::kInv7, StrCat("request ", answer.request_id, " is answered ",
                                         committed ? "published" : "not published", ", recorded is the other"));
  }
  const auto [before, first] = told_.emplace(answer.request_id, committed);
  if (!first && before->second != committed) {
    world_.Report(Checker::kInv7, StrCat("request ", answer.request_id, " is told two outcomes"));
  }
  if (committed && answer.outcome.has_value()) {
    told_version_[answer.request_id] = answer.outcome->version;
  }
}

// INV-4 where there is no fence (settled C9): a superseded controller that runs ends its writes within a period of the
// registry and one look at the term.
void Checks::OnRouterCall(const ControllerProcess& process, const fleet::RouterAction& action) {
  const auto successor = acquired_.upper_bound(process.term());
  if (std::holds_alternative<fleet::RouterList>(action) || successor == acquired_.end()) {
    return;
  }
  const Instant since = std::max(successor->second, process.thawed_at());
  if (world_.now() > since + kReconcileInterval + kTermCheckInterval + kTermCheckTime) {
    world_.Report(Checker::kInv4, StrCat("controller ", process.number(), " still writes to the router after term ",
                                         successor->first, " was acquired"));
  }
}

// S8: what a successor reads agrees with what callers were told.
void Checks::OnController(const ControllerProcess& process, const control::JournalState& state) {
  acquired_[process.term()] = world_.now();
  for (const auto& [request, version] : told_version_) {
    const auto outcome = state.outcomes.find(request);
    if (outcome == state.outcomes.end() || !outcome->second.committed || outcome->second.version != version ||
        !state.commits.contains(version)) {
      world_.Report(Checker::kS8,
                    StrCat("request ", request, " was told version ", version, ", which the journal does not say"));
    }
  }
  if (state.committed != committed_version()) {
    world_.Report(Checker::kS8, StrCat("the journal replays to version ", state.committed, ", committed is version ",
                                       committed_version()));
  }
}

// L1: a controller that was there all the time has not answered by the deadline.
void Checks::OnUnanswered(const std::string& request_id, Instant asked, std::uint32_t number) {
  const ControllerProcess* const controller = world_.controller();
  if (controller != nullptr && controller->number() == number && controller->alive() && !controller->frozen() &&
      controller->thawed_at() <= asked) {
    world_.Report(Checker::kL1, StrCat("request ", request_id, " has no answer after its deadline"));
  }
}

void Checks::OnArrow(const control::SlotChanged& change) {
  const std::span<const fleet::SlotArrow> arrows = fleet::SlotArrows();
  for (std::size_t i = 0; i < arrows.size(); ++i) {
    if (arrows[i] == change.arrow) {
      arrows_.set(i);
    }
  }
}

}  // namespace refit::sim
