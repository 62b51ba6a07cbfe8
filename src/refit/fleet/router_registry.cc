// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/router_registry.h"

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"

namespace refit::fleet {
namespace {

constexpr Duration kPeriod = std::chrono::seconds(1);              // RC-RTR-04
constexpr Duration kCallDeadline = std::chrono::seconds(1);        // lists take a millisecond
constexpr Duration kEagerPeriod = std::chrono::milliseconds(100);  // an accepted add is listed 0.3 s later

// Whether the router has said no: what it did not take cannot land later.
bool IsRefusal(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kPermissionDenied:
    case StatusCode::kFailedPrecondition: return true;
    default: return false;
  }
}

}  // namespace

std::string_view ToString(RouterPhase phase) {
  switch (phase) {
    case RouterPhase::kOff: return "off";
    case RouterPhase::kWaiting: return "waiting";
    case RouterPhase::kListing: return "listing";
    case RouterPhase::kActing: return "acting";
  }
  return "?";
}

void RouterRegistry::Start(Instant now) {
  if (phase_ == RouterPhase::kOff) {
    phase_ = RouterPhase::kWaiting;
    next_list_ = now;
  }
}

void RouterRegistry::Want(SlotIndex slot, Incarnation incarnation, Instant now, RouterEffects& out) {
  wanted_[slot] = incarnation;
  removing_.erase({slot, incarnation});
  listed_.erase({slot, incarnation});
  Changed(now, out);
}

void RouterRegistry::Remove(SlotIndex slot, Incarnation incarnation, Instant now, RouterEffects& out) {
  if (wants(slot, incarnation)) {
    wanted_.erase(slot);
  }
  removing_.insert({slot, incarnation});
  listed_.erase({slot, incarnation});
  Changed(now, out);
}

// What was planned from an older list is not done any more; the next list is read as soon as the line is free.
void RouterRegistry::Changed(Instant now, RouterEffects& out) {
  actions_.clear();
  eager_until_ = now + kPeriod;
  if (phase_ == RouterPhase::kWaiting) {
    Call(RouterList{}, now, out);
  }
}

void RouterRegistry::Call(RouterAction action, Instant now, RouterEffects& out) {
  current_ = std::move(action);
  call_deadline_ = now + kCallDeadline;
  if (std::holds_alternative<RouterList>(current_)) {
    phase_ = RouterPhase::kListing;
    list_sent_ = now;
  } else {
    phase_ = RouterPhase::kActing;
  }
  if (const auto* add = std::get_if<RouterAdd>(&current_)) {
    Add& sent = adds_[{add->slot, add->incarnation}];
    ++sent.count;
    sent.settled = kNever;
    sent.again = now + kPeriod;
  } else if (const auto* entry = std::get_if<RouterDelete>(&current_)) {
    deletes_[entry->id] = now + kPeriod;
  }
  out.emplace_back(CallRouter{++call_, current_, kCallDeadline});
}

void RouterRegistry::OnAnswer(std::uint64_t call, const Status& status, const std::vector<RouterEntry>& entries,
                              Instant now, RouterEffects& out) {
  if (call != call_ || (phase_ != RouterPhase::kListing && phase_ != RouterPhase::kActing)) {
    return;  // later than its deadline: it counts as unanswered
  }
  const bool listed = phase_ == RouterPhase::kListing && status.ok();
  phase_ = RouterPhase::kWaiting;
  next_list_ = REFIT_MUTANT("RC-RTR-04/no-reconcile", list_sent_ + kPeriod, kNever);
  if (listed) {
    OnListed(entries, now, out);
  } else if (!std::holds_alternative<RouterList>(current_)) {
    OnActed(status, now, out);
  }
  Next(now, out);
}

void RouterRegistry::OnActed(const Status& status, Instant now, RouterEffects& out) {
  if (const auto* add = std::get_if<RouterAdd>(&current_)) {
    Add& sent = adds_[{add->slot, add->incarnation}];
    const bool lands_never = IsRefusal(status) && sent.count == 1;
    sent.settled = lands_never ? now : now + options_.add_settles;
    if (REFIT_MUTANT("RC-RTR-01/fire-and-forget", false, status.ok())) {
      out.emplace_back(EntryListed{add->slot, add->incarnation});
    }
  } else if (REFIT_MUTANT("RX-LEAD-03/assume-the-delete-worked", false, status.ok())) {
    for (const auto& [slot, incarnation] : std::exchange(removing_, {})) {
      out.emplace_back(EntryGone{slot, incarnation});
    }
  }
  if (status.ok() || REFIT_MUTANT("RC-RTR-02/not-found-is-an-error", IsRefusal(status), false)) {
    next_list_ = now;  // else it does not answer: the next period shows whether it does again
  }
}

void RouterRegistry::OnListed(const std::vector<RouterEntry>& entries, Instant now, RouterEffects& out) {
  std::set<Life> seen;
  for (const RouterEntry& entry : entries) {
    seen.insert({entry.slot, entry.incarnation});
  }
  SayWhatIsSeen(seen, now, out);
  PlanDeletes(entries, now);
  PlanAdds(seen, now);
}

void RouterRegistry::SayWhatIsSeen(const std::set<Life>& seen, Instant now, RouterEffects& out) {
  for (const auto& [slot, incarnation] : wanted_) {
    const Life life{slot, incarnation};
    if (!seen.contains(life)) {
      listed_.erase(life);
    } else if (listed_.insert(life).second) {
      out.emplace_back(EntryListed{slot, incarnation});
    }
  }
  std::erase_if(adds_, [&](const auto& entry) {
    const auto& [life, add] = entry;
    return (add.count == 1 && seen.contains(life)) || (add.settled <= list_sent_ && add.again <= now);
  });
  std::erase_if(removing_, [&](const Life& life) {
    const auto add = adds_.find(life);
    const bool pending = add != adds_.end() && add->second.settled > list_sent_;
    if (seen.contains(life) || REFIT_MUTANT("RC-RTR-04/confirm-with-add-pending", pending, false)) {
      return false;
    }
    out.emplace_back(EntryGone{life.first, life.second});
    return true;
  });
}

// Whatever is not wanted, and a second entry of what is.
void RouterRegistry::PlanDeletes(const std::vector<RouterEntry>& entries, Instant now) {
  std::set<Life> kept;
  std::map<std::string, Instant> sent;
  for (const RouterEntry& entry : entries) {
    const bool keep = wants(entry.slot, entry.incarnation) ||
                      (entry.incarnation.is_zero() && REFIT_MUTANT("RC-RTR-04/keep-foreign", false, true));
    if (keep && kept.insert({entry.slot, entry.incarnation}).second) {
      continue;
    }
    const auto again = deletes_.find(entry.id);
    if (again == deletes_.end() || again->second <= now) {
      actions_.emplace_back(RouterDelete{entry.id});
    } else {
      sent.insert(*again);
    }
  }
  deletes_ = std::move(sent);
}

void RouterRegistry::PlanAdds(const std::set<Life>& seen, Instant now) {
  for (const auto& [slot, incarnation] : wanted_) {
    const auto sent = adds_.find({slot, incarnation});
    const bool waits = sent != adds_.end() && sent->second.again > now;
    if (!seen.contains({slot, incarnation}) && !waits) {
      actions_.emplace_back(RouterAdd{slot, incarnation});
    }
  }
}

// The next action, or the next list.
void RouterRegistry::Next(Instant now, RouterEffects& out) {
  if (!actions_.empty()) {
    RouterAction action = std::move(actions_.front());
    actions_.pop_front();
    return Call(std::move(action), now, out);
  }
  if (now < eager_until_) {
    next_list_ = std::min(next_list_, list_sent_ + kEagerPeriod);
  }
  if (next_list_ <= now) {
    Call(RouterList{}, now, out);
  }
}

void RouterRegistry::HandleDeadline(Instant now, RouterEffects& out) {
  if (phase_ == RouterPhase::kWaiting && next_list_ <= now) {
    Call(RouterList{}, now, out);
  } else if ((phase_ == RouterPhase::kListing || phase_ == RouterPhase::kActing) && call_deadline_ <= now) {
    OnAnswer(call_, DeadlineExceeded("the router gave no answer"), {}, now, out);
  }
}

Instant RouterRegistry::next_deadline() const {
  switch (phase_) {
    case RouterPhase::kOff: return kNever;
    case RouterPhase::kWaiting: return next_list_;
    case RouterPhase::kListing:
    case RouterPhase::kActing: return call_deadline_;
  }
  return kNever;
}

bool RouterRegistry::wants(SlotIndex slot, Incarnation incarnation) const {
  const auto found = wanted_.find(slot);
  return found != wanted_.end() && !incarnation.is_zero() && found->second == incarnation;
}

}  // namespace refit::fleet
