// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What stands around a controller of the rig: the journal, the router, launches, probes, kills, a successor.

#include <algorithm>

#include "refit/base/str.h"
#include "tests/support/fleet_rig.h"

namespace refit::testing {

// ---- what tests look at

int FleetRig::traced(std::string_view line) const {
  return static_cast<int>(std::count(trace_.begin(), trace_.end(), line));
}

std::size_t FleetRig::traced_at(std::string_view line) const {
  return static_cast<std::size_t>(std::find(trace_.begin(), trace_.end(), line) - trace_.begin());
}

fleet::SlotState FleetRig::state(std::uint32_t slot) {
  for (const control::SlotView& view : controller_->slots()) {
    if (view.slot == SlotIndex(slot)) {
      return view.state;
    }
  }
  return fleet::SlotState::kRetired;
}

std::vector<control::Record> FleetRig::records(std::string_view name) const {
  std::vector<control::Record> found;
  for (const std::string& payload : journal_) {
    Result<control::Record> record = control::Decode(payload);
    if (record.ok() && control::NameOf(*record) == name) {
      found.push_back(*std::move(record));
    }
  }
  return found;
}

bool FleetRig::routed(std::uint32_t slot) {
  const Incarnation life = incarnation(slot);
  return std::any_of(router_.begin(), router_.end(), [slot, life](const auto& each) {
    return each.second.slot == SlotIndex(slot) && each.second.incarnation == life;
  });
}

// INV-2: whoever can be reached through the router serves what was committed last, or nobody.
void FleetRig::CheckTraffic(const char* when) {
  for (const auto& [id, entry] : router_) {
    const auto box = boxes_.find(entry.slot);
    const bool known = box != boxes_.end() && box->second.incarnation == entry.incarnation;
    if (known && box->second.engine.generates() && !box->second.engine.serves(journal_state_.committed)) {
      violations_.push_back(
          StrCat("engine ", entry.slot, " is routed at another version than ", journal_state_.committed, " ", when));
    }
  }
}

// ---- the journal

void FleetRig::Write(const control::Record& record) {
  std::string payload = control::Encode(record);
  const Result<control::Record> back = control::Decode(payload);
  if (!back.ok() || !(*back == record)) {
    violations_.push_back(StrCat("does not come back from the journal: ", ToString(record)));
  }
  if (const Status status = control::Apply(record, journal_state_); !status.ok()) {
    violations_.push_back(status.message());
  }
  journal_.push_back(std::move(payload));
}

void FleetRig::OnAppend(const control::Append& append, Term term) {
  trace_.push_back(StrCat("append ", NameOf(append.record)));
  const auto* commit = std::get_if<control::CommitRecord>(&append.record);
  std::optional<Status> status = OkStatus();
  if (on_append) {
    status = on_append(append.record);
  } else if (commit != nullptr) {
    status = answer_commit ? std::optional(commit_status) : std::nullopt;
  }
  if (term != term_) {  // the medium asks for the writer's term in the same transaction (RX-LEAD-02)
    status = FailedPrecondition(StrCat("term ", term, " is over"));
  } else if ((status.has_value() && status->ok()) || lose_written) {
    Write(append.record);
    if (commit != nullptr) {
      CheckCommit(*commit);
      commits_.push_back(*commit);
      CheckTraffic("at its commit");
    }
  }
  if (status.has_value()) {
    ToSender(control::Appended{append.append, *status}, term);
  }
}

void FleetRig::TakeOver() {
  Result<control::JournalState> recovered = control::Replay(journal_);
  if (!recovered.ok()) {
    violations_.push_back(recovered.status().message());
    return;
  }
  term_ = term_.Next();
  former_thawed_ = false;
  former_stopped_ = stopped_;
  stopped_ = 0;
  former_ = std::move(controller_);
  answered_ = asked_;
  Write(control::TermRecord{term_});
  recovered->term = term_;
  recovered->attempts = 0;
  controller_ = std::make_unique<control::Controller>(MakeOptions(term_), &*recovered);
  control::ControllerEffects effects;
  controller_->Start(now_, effects);
  CarryOut(effects, term_);
  for (const auto& [rank, box] : policies_) {
    if (!box.dead) {
      ToController(control::PolicyRegistered{{rank, box.incarnation, StrCat("policy:", rank), options_.retains}});
    }
  }
  for (const auto& [slot, box] : boxes_) {
    if (!box.unreachable && box.agent->phase() != peer::AgentPhase::kDead) {
      ToAgent(slot, box.incarnation, peer::ContactMade{term_});
      Register(slot.value());
    }
  }
  RunUntilQuiet();
}

// ---- launches, probes, kills

void FleetRig::CarryOutWorld(const control::ControllerEffect& effect, Term term) {
  if (const auto* append = std::get_if<control::Append>(&effect)) {
    OnAppend(*append, term);
  } else if (const auto* launch = std::get_if<control::LaunchEngine>(&effect)) {
    OnLaunchEngine(*launch);
  } else if (const auto* shut = std::get_if<control::ShutDownEngine>(&effect)) {
    trace_.push_back(StrCat(shut->slot, " shut down"));
    if (!on_shut_down || on_shut_down(shut->slot)) {
      ToController(control::ShutDownEnded{shut->slot, shut->incarnation});
    }
  } else if (const auto* drain = std::get_if<control::DrainEngine>(&effect)) {
    trace_.push_back(StrCat(drain->slot, " drain"));
    if (const std::optional<Status> status = on_drain ? on_drain(drain->slot) : OkStatus(); status.has_value()) {
      ToController(control::DrainEnded{drain->slot, drain->incarnation, *status});
    }
  } else if (const auto* done = std::get_if<control::SlotAnswered>(&effect)) {
    trace_.push_back(StrCat(done->request_id, ": ", done->status.ToString()));
  } else if (const auto* kill = std::get_if<control::KillEngine>(&effect)) {
    trace_.push_back(StrCat(kill->slot, " hard kill"));
    const std::optional<bool> confirmed = on_kill ? on_kill(kill->slot) : true;
    const auto box = boxes_.find(kill->slot);
    if (confirmed == true && box != boxes_.end() && box->second.incarnation == kill->incarnation) {
      box->second.engine.Kill();
      Detach(kill->slot);
    }
    if (confirmed.has_value()) {
      ToController(control::KillEnded{kill->slot, kill->incarnation, *confirmed});
    }
  } else if (const auto* probe = std::get_if<control::ProbeEngine>(&effect)) {
    OnProbe(*probe);
  } else if (std::holds_alternative<control::CheckTerm>(effect)) {
    ToSender(control::TermChecked{term_}, term);
  } else if (const auto* routed = std::get_if<control::RouterCall>(&effect)) {
    OnRouterCall(*routed);
  } else if (const auto* changed = std::get_if<control::SlotChanged>(&effect)) {
    arrows_[changed->slot].push_back(changed->arrow);
  } else if (const auto* stop = std::get_if<control::Stop>(&effect)) {
    trace_.emplace_back("stop");
    (term == term_ ? stopped_ : former_stopped_) = stop->exit_code;
  }
}

void FleetRig::OnLaunchEngine(const control::LaunchEngine& launch) {
  trace_.push_back(StrCat(launch.slot, " launch"));
  const std::optional<Status> status = on_launch ? on_launch(launch.slot) : OkStatus();
  if (!status.has_value()) {
    return;
  }
  if (!status->ok()) {
    return ToController(control::LaunchFailed{launch.slot, launch.launch, *status});
  }
  const auto box = boxes_.find(launch.slot);
  if (box != boxes_.end() && !box->second.engine.dead() && box->second.agent->phase() != peer::AgentPhase::kDead) {
    violations_.push_back(StrCat("engine ", launch.slot, " is launched beside a life that is not over"));  // INV-6
  }
  Launch(launch.slot.value());
}

void FleetRig::OnProbe(const control::ProbeEngine& probe) {
  trace_.push_back(StrCat(probe.slot, " probe"));
  last_probe_ = probe;
  const AgentBox& box = boxes_.at(probe.slot);
  if (box.incarnation == probe.incarnation && (box.engine.paused() || box.engine.released())) {
    violations_.push_back(StrCat("engine ", probe.slot, " is probed although it cannot generate"));
  }
  std::optional<Status> status = box.engine.generates() ? OkStatus() : Unavailable("no token came");
  if (on_probe) {
    status = on_probe(probe.slot);
  }
  if (status.has_value()) {
    ToController(control::ProbeEnded{probe.slot, probe.incarnation, probe.probe, *status});
  }
}

void FleetRig::OnRouterCall(const control::RouterCall& call) {
  const auto* add = std::get_if<fleet::RouterAdd>(&call.action);
  const auto* entry = std::get_if<fleet::RouterDelete>(&call.action);
  if (add != nullptr) {
    trace_.push_back(StrCat("router add ", add->slot));
  } else if (entry != nullptr) {
    const auto found = router_.find(entry->id);
    trace_.push_back(StrCat("router delete ", found == router_.end() ? "?" : StrCat(found->second.slot)));
  }
  std::optional<Status> status = on_router ? on_router(call.action) : OkStatus();
  control::RouterAnswered answer{call.call, OkStatus(), {}};
  if (status.has_value() && status->ok()) {
    if (add != nullptr) {
      const std::string id = StrCat("entry-", next_entry_++);
      router_[id] = {id, add->slot, add->incarnation};
      CheckTraffic("when it is added");
    } else if (entry != nullptr) {
      router_.erase(entry->id);
    } else {
      for (const auto& [id, each] : router_) {
        answer.entries.push_back(each);
      }
    }
  }
  if (status.has_value()) {
    answer.status = *status;
    ToController(answer);
  }
}

}  // namespace refit::testing
