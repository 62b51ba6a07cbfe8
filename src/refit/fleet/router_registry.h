// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The router's registry as this controller wants it, and how it gets there (RC-RTR-*, settled C9). The controller is
// the only writer and reconciles every second: what it does not want is deleted, what is missing is added. The router
// cannot check terms, so an entry is known to be gone only once a list without it was read while no add of ours was
// pending.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"

namespace refit::fleet {

struct RouterEntry {
  std::string id;  // the router's own; empty in an add
  SlotIndex slot;
  Incarnation incarnation;  // labels; zero: an entry that is not ours
  friend bool operator==(const RouterEntry&, const RouterEntry&) = default;
};

struct RouterList {};
struct RouterAdd {
  SlotIndex slot;
  Incarnation incarnation;
};
struct RouterDelete {
  std::string id;
};
using RouterAction = std::variant<RouterList, RouterAdd, RouterDelete>;

// ---- effects
struct CallRouter {
  std::uint64_t call;
  RouterAction action;
  Duration deadline{};
};
struct EntryGone {  // answer to Remove: that life is in no list any more
  SlotIndex slot;
  Incarnation incarnation;
};
struct EntryListed {  // the router lists it (RC-RTR-01)
  SlotIndex slot;
  Incarnation incarnation;
};
using RouterEffect = std::variant<CallRouter, EntryGone, EntryListed>;
using RouterEffects = std::vector<RouterEffect>;

class RouterRegistry {
 public:
  RouterRegistry() = default;

  void Start(Instant now);  // begins to reconcile
  // From here on that life is wanted; nothing else of its slot is.
  void Want(SlotIndex slot, Incarnation incarnation, Instant now, RouterEffects& out);
  // Not wanted any more; EntryGone once that is known, which a router that does not answer can hold up for ever.
  void Remove(SlotIndex slot, Incarnation incarnation, Instant now, RouterEffects& out);
  void OnAnswer(std::uint64_t call, const Status& status, const std::vector<RouterEntry>& entries, Instant now,
                RouterEffects& out);

  void HandleDeadline(Instant now, RouterEffects& out);
  Instant next_deadline() const;
  bool wants(SlotIndex slot, Incarnation incarnation) const;
};

}  // namespace refit::fleet
