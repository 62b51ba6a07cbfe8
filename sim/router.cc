// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/router.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/controller_process.h"
#include "sim/disk.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/world.h"

namespace refit::sim {

Router::Router(World& world) : world_(world) {}

void Router::Serve(ControllerProcess& from, const fleet::RouterAction& action, const OnAnswer& answer) {
  if (world_.faults().During(FaultKind::kLoseRouter, 0).has_value()) {
    return;
  }
  if (std::holds_alternative<fleet::RouterList>(action)) {
    std::vector<fleet::RouterEntry> listed;
    for (const Entry& entry : entries_) {
      listed.push_back(entry.entry);
    }
    return answer(OkStatus(), listed);
  }
  if (const auto* add = std::get_if<fleet::RouterAdd>(&action)) {
    world_.Note("router: term ", from.term(), " adds engine ", add->slot, " life ", add->incarnation.low);
    const auto same = std::find_if(entries_.begin(), entries_.end(), [add](const Entry& entry) {
      return entry.entry.incarnation == add->incarnation && entry.entry.slot == add->slot;
    });
    const bool late = from.term() < world_.disk().term();
    if (same == entries_.end()) {
      entries_.push_back({{StrCat("w", next_id_++), add->slot, add->incarnation}, from.term(), late});
    } else if (!late) {
      same->writer = from.term();
      same->late = false;
    }
    world_.checks().OnRouterWrite(from, entries_);
    return answer(OkStatus(), {});
  }
  const std::string& id = std::get<fleet::RouterDelete>(action).id;
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&id](const Entry& entry) { return entry.entry.id == id; });
  if (found == entries_.end()) {
    return answer(NotFound("no such worker"), {});
  }
  world_.Note("router: term ", from.term(), " deletes engine ", found->entry.slot, " life ",
              found->entry.incarnation.low);
  entries_.erase(found);
  world_.checks().OnRouterWrite(from, entries_);
  answer(OkStatus(), {});
}

void Router::Forget() {
  world_.Note("router: restarts empty");
  entries_.clear();
}

// An address at which nobody listens.
void Router::AddForeign() {
  world_.Note("router: somebody adds an entry");
  entries_.push_back({{StrCat("w", next_id_++), SlotIndex(0), Incarnation{}}, Term(0), false});
}

// Ports are not used again, so an address is one life's for ever (settled C9).
Engine* Router::Listener(const Entry& entry) const {
  const AgentProcess* const agent = world_.agent(entry.entry.slot);
  [[maybe_unused]] const Incarnation now = agent == nullptr ? Incarnation{} : agent->life().value_or(Incarnation{});
  Engine* const engine = world_.engine(REFIT_MUTANT("RC-REC-09/port-again", entry.entry.incarnation, now));
  return engine != nullptr && engine->slot() == entry.entry.slot ? engine : nullptr;
}

// ---- traffic

void Traffic::Next() {
  world_.After(world_.Between(Millis(20), Millis(400)), [this] {
    if (!stopped_) {
      Ask();
      Next();
    }
  });
}

void Traffic::Ask() {
  const std::vector<Router::Entry>& entries = world_.router().entries();
  if (entries.empty() || world_.faults().During(FaultKind::kLoseRouter, 0).has_value()) {
    return;
  }
  const Router::Entry entry = entries[world_.Draw() % entries.size()];
  Engine* const engine = world_.router().Listener(entry);
  if (engine == nullptr) {
    return;
  }
  const auto arrived = world_.checks().OnRequest(entry);
  engine->Generate(1 + world_.Draw() % 3, [this, arrived, entry](const Generated& generated) {
    world_.Note("request to engine ", entry.entry.slot, " life ", entry.entry.incarnation.low, " got ",
                generated.tokens.size(), generated.succeeded ? "" : ", failed");
    world_.checks().OnAnswer(arrived, entry, generated);
    ControllerProcess* const controller = world_.controller();
    if (controller != nullptr) {
      const bool succeeded = generated.succeeded;
      world_.network().Send({ProcessKind::kRouter, 0}, controller->id(), [controller, entry, succeeded] {
        controller->Run([controller, entry, succeeded] {
          controller->OnServed(entry.entry.slot, entry.entry.incarnation, succeeded);
        });
      });
    }
  });
}

}  // namespace refit::sim
