// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The router's registry as this controller wants it, and how it gets there (RC-RTR-*, settled C9). The controller is
// the only writer and reconciles every second: what it does not want is deleted, what is missing is added. The router
// cannot check terms, so an entry is known to be gone only once a list without it was read while no add of ours was
// pending.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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

struct RouterOptions {
  // A router accepts an add before it has the entry: for so long an add that no list shows may still land. The router's
  // worker start-up timeout.
  Duration add_settles = std::chrono::seconds(5);
};

enum class RouterPhase : std::uint8_t { kOff, kWaiting, kListing, kActing };
std::string_view ToString(RouterPhase phase);

// One call at a time. A list each second, and at once after a change or an action.
class RouterRegistry {
 public:
  explicit RouterRegistry(RouterOptions options = {}) : options_(options) {}

  void Start(Instant now);  // begins to reconcile
  // From here on that life is wanted; nothing else of its slot is. Answered by EntryListed, each time.
  void Want(SlotIndex slot, Incarnation incarnation, Instant now, RouterEffects& out);
  // Not wanted any more; EntryGone once that is known, which a router that does not answer can hold up for ever. A Want
  // of the same life withdraws it.
  void Remove(SlotIndex slot, Incarnation incarnation, Instant now, RouterEffects& out);
  void OnAnswer(std::uint64_t call, const Status& status, const std::vector<RouterEntry>& entries, Instant now,
                RouterEffects& out);

  void HandleDeadline(Instant now, RouterEffects& out);
  Instant next_deadline() const;
  bool wants(SlotIndex slot, Incarnation incarnation) const;
  RouterPhase phase() const { return phase_; }

 private:
  using Life = std::pair<SlotIndex, Incarnation>;
  struct Add {
    std::uint32_t count = 0;  // sent since the entry was last seen
    Instant settled;          // afterwards none of them lands any more
    Instant again;            // not repeated before
  };

  void Changed(Instant now, RouterEffects& out);
  void Call(RouterAction action, Instant now, RouterEffects& out);
  void Next(Instant now, RouterEffects& out);
  void OnListed(const std::vector<RouterEntry>& entries, Instant now, RouterEffects& out);
  void OnActed(const Status& status, Instant now, RouterEffects& out);
  void SayWhatIsSeen(const std::set<Life>& seen, Instant now, RouterEffects& out);
  void PlanAdds(const std::set<Life>& seen, Instant now);
  void PlanDeletes(const std::vector<RouterEntry>& entries, Instant now);

  RouterOptions options_;
  RouterPhase phase_ = RouterPhase::kOff;
  std::map<SlotIndex, Incarnation> wanted_;
  std::set<Life> removing_;  // EntryGone is owed
  std::set<Life> listed_;    // said so
  std::map<Life, Add> adds_;
  std::map<std::string, Instant> deletes_;  // by id: not repeated before
  std::deque<RouterAction> actions_;        // still to be called
  std::uint64_t call_ = 0;                  // the last one
  RouterAction current_;
  Instant call_deadline_ = kNever;
  Instant list_sent_;
  Instant next_list_ = kNever;
  Instant eager_until_;  // after a change of ours the list is read more often
};

}  // namespace refit::fleet
