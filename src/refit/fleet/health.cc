// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/health.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::fleet {
namespace {

constexpr Duration kStopSlack = std::chrono::seconds(5);  // RC-MON-07: stop waits for T + I + this

}  // namespace

std::string_view ToString(HealthPhase phase) {
  switch (phase) {
    case HealthPhase::kOff: return "off";
    case HealthPhase::kRunning: return "running";
    case HealthPhase::kStopping: return "stopping";
  }
  return "?";
}

Health::Health(HealthOptions options) : options_(options) {}

void Health::Start(Instant now) {
  if (REFIT_MUTANT("RC-MON-08/start-twice", phase_ != HealthPhase::kOff, false)) {
    return;
  }
  phase_ = HealthPhase::kRunning;
  for (auto& [slot, life] : lives_) {
    life.enabled = REFIT_MUTANT("RC-MON-08/start-twice", false, life.enabled);  // starts paused (RC-MON-03)
    life.next_probe = now;
    life.probe = REFIT_MUTANT("RC-MON-08/start-twice", life.probe, 0U);
  }
}

void Health::Stop(Instant now, HealthEffects& out) {
  if (phase_ == HealthPhase::kOff) {
    out.emplace_back(MonitorStopped{});
    return;
  }
  if (phase_ == HealthPhase::kStopping) {
    return;
  }
  phase_ = HealthPhase::kStopping;
  stop_deadline_ =
      REFIT_MUTANT("RC-MON-07/wait-for-ever", now + options_.timeout + options_.interval + kStopSlack, kNever);
  AnswerStop(out);
}

void Health::Watch(SlotIndex slot, Incarnation incarnation, Instant now) {
  if (incarnation.is_zero() || Find(slot, incarnation) != nullptr) {
    return;
  }
  Life& life = lives_[slot];
  if (life.disabling) {
    owed_.push_back({slot, life.incarnation});
  }
  const Life before = std::exchange(life, Life{});
  life.incarnation = incarnation;
  life.grace = REFIT_MUTANT("RC-MON-06/no-grace", now + options_.first_wait, now);
  life.next_probe = now + options_.interval;  // it has just told of itself
  life.enabled = REFIT_MUTANT("RC-MON-03/starts-enabled", false, true);
  life.probe = REFIT_MUTANT("RC-MON-10/kill-by-slot", 0U, before.probe);
  life.probe_deadline = before.probe_deadline;
}

void Health::Forget(SlotIndex slot, Incarnation incarnation, HealthEffects& out) {
  if (Life* life = Find(slot, incarnation); life != nullptr) {
    if (life->disabling) {
      out.emplace_back(Quiet{slot, incarnation});
    }
    lives_.erase(slot);
    AnswerStop(out);
  }
}

// Moves no deadline: what was due while it was disabled is due at once (RC-MON-05).
void Health::Enable(SlotIndex slot, Incarnation incarnation, [[maybe_unused]] Instant now) {
  for (auto& [other, life] : lives_) {
    const bool is_meant = other == slot && life.incarnation == incarnation;
    if (!REFIT_MUTANT("RC-MON-11/one-switch", is_meant, true)) {
      continue;
    }
    life.grace = REFIT_MUTANT("RC-MON-05/re-arm-on-enable", life.grace, now + options_.first_wait);
    life.next_probe = REFIT_MUTANT("RC-MON-05/count-only-unpaused", life.next_probe, now + options_.interval);
    life.enabled = !life.unhealthy && phase_ == HealthPhase::kRunning;
    life.disabling = false;
  }
}

void Health::Disable(SlotIndex slot, Incarnation incarnation, HealthEffects& out) {
  Life* life = Find(slot, incarnation);
  if (life == nullptr) {
    out.emplace_back(Quiet{slot, incarnation});  // not watched: nothing of it is in flight
    return;
  }
  life->enabled = false;
  life->disabling = true;
  AnswerDisable(slot, *life, out);
}

void Health::OnProbeEnded(SlotIndex slot, Incarnation incarnation, std::uint64_t probe, const Status& status,
                          Instant /*now*/, HealthEffects& out) {
  Life* life = Find(slot, incarnation);
  if (life == nullptr || life->probe == 0 || life->probe != probe) {
    return;  // of a dead life, or later than 2T: it counted as failed already (RC-MON-02, -10)
  }
  EndProbe(slot, *life, status, out);
}

void Health::OnKillEnded(SlotIndex slot, Incarnation incarnation, HealthEffects& out) {
  Life* life = Find(slot, incarnation);
  if (life == nullptr || !life->killing) {
    return;
  }
  life->killing = false;
  AnswerDisable(slot, *life, out);
  AnswerStop(out);
}

void Health::OnRequest(SlotIndex slot, Incarnation incarnation, const Status& status, HealthEffects& out) {
  Life* life = Find(slot, incarnation);
  if (life == nullptr || life->unhealthy) {
    return;
  }
  if (status.ok()) {
    life->request_failures = 0;
    return;
  }
  if (!life->enabled) {
    return;
  }
  ++life->request_failures;
  if (life->request_failures >= options_.request_failures) {
    SayUnhealthy(slot, *life, StrCat(life->request_failures, " requests in a row failed: ", status.ToString()), out);
  }
}

void Health::HandleDeadline(Instant now, HealthEffects& out) {
  out.insert(out.end(), owed_.begin(), owed_.end());
  owed_.clear();
  for (auto& [slot, life] : lives_) {
    if (life.probe != 0 && life.probe_deadline <= now) {
      EndProbe(
          slot, life,
          DeadlineExceeded(StrCat("a probe gave no answer within ",
                                  std::chrono::ceil<std::chrono::milliseconds>(2 * options_.timeout).count(), " ms")),
          out);
    }
  }
  if (phase_ == HealthPhase::kStopping && stop_deadline_ <= now) {
    EndStop(InFlight(), out);
  }
  for (auto& [slot, life] : lives_) {
    if (MayProbe(life) && DueAt(life) <= now) {
      life.probe = ++last_probe_;
      life.probe_deadline = REFIT_MUTANT("RC-MON-02/no-outer-bound", now + 2 * options_.timeout, kNever);
      life.next_probe = now + options_.interval;
      out.emplace_back(StartProbe{slot, life.incarnation, life.probe, options_.timeout});
    }
  }
}

Instant Health::next_deadline() const {
  Instant next = owed_.empty() ? kNever : Instant::min();
  if (phase_ == HealthPhase::kStopping) {
    next = std::min(next, stop_deadline_);
  }
  for (const auto& [slot, life] : lives_) {
    if (life.probe != 0) {
      next = std::min(next, life.probe_deadline);
    } else if (MayProbe(life)) {
      next = std::min(next, DueAt(life));
    }
  }
  return next;
}

bool Health::probing(SlotIndex slot) const {
  const auto found = lives_.find(slot);
  return found != lives_.end() && found->second.probe != 0;
}

// Nothing about a life but the one that is in the slot now (RC-MON-10, RX-QUAR-07).
Health::Life* Health::Find(SlotIndex slot, Incarnation incarnation) {
  const auto found = lives_.find(slot);
  if (found == lives_.end()) {
    return nullptr;
  }
  const bool is_meant = found->second.incarnation == incarnation;
  const bool by_slot = REFIT_MUTANT("RC-MON-10/kill-by-slot", false, true);
  return REFIT_MUTANT("RX-QUAR-07/by-slot", is_meant || by_slot, true) ? &found->second : nullptr;
}

bool Health::MayProbe(const Life& life) const {
  return phase_ == HealthPhase::kRunning && life.enabled && life.probe == 0 && !life.unhealthy;
}

Instant Health::DueAt(const Life& life) const { return std::max(life.grace, life.next_probe); }

void Health::EndProbe(SlotIndex slot, Life& life, const Status& status, HealthEffects& out) {
  life.probe = 0;
  if (phase_ == HealthPhase::kRunning || REFIT_MUTANT("RC-MON-07/act-after-stop", false, true)) {
    Judge(slot, life, status, out);
  }
  AnswerDisable(slot, life, out);
  AnswerStop(out);
}

void Health::Judge(SlotIndex slot, Life& life, const Status& status, HealthEffects& out) {
  if (life.unhealthy) {
    return;
  }
  if (status.ok()) {
    life.failures = 0;
    life.request_failures = REFIT_MUTANT("RX-QUAR-06/one-streak", life.request_failures, 0U);
    return;
  }
  ++life.failures;
  std::string reason = StrCat(life.failures, " probes in a row failed: ", status.ToString());
  if (life.failures >= REFIT_MUTANT("RX-QUAR-06/no-grading", options_.probe_failures, 1U)) {
    SayUnhealthy(slot, life, std::move(reason), out);
  } else {
    out.emplace_back(Suspected{slot, life.incarnation, life.failures, std::move(reason)});
  }
}

void Health::SayUnhealthy(SlotIndex slot, Life& life, std::string reason, HealthEffects& out) {
  life.unhealthy = true;
  life.killing = true;
  life.enabled = false;
  out.emplace_back(Unhealthy{slot, life.incarnation, std::move(reason)});
}

// RC-MON-04: a probe, and the kill that it causes, must not overlap what the caller does next.
void Health::AnswerDisable(SlotIndex slot, Life& life, HealthEffects& out) {
  const bool probing = REFIT_MUTANT("RC-MON-04/flag-only", life.probe != 0, false);
  const bool killing = REFIT_MUTANT("RC-MON-04/kill-not-awaited", life.killing, false);
  if (life.disabling && !probing && !killing) {
    life.disabling = false;
    out.emplace_back(Quiet{slot, life.incarnation});
  }
}

void Health::AnswerStop(HealthEffects& out) {
  if (phase_ == HealthPhase::kStopping && InFlight() == 0) {
    EndStop(0, out);
  }
}

void Health::EndStop(std::size_t in_flight, HealthEffects& out) {
  phase_ = HealthPhase::kOff;
  stop_deadline_ = kNever;
  out.emplace_back(MonitorStopped{.outlived = in_flight > 0});
}

std::size_t Health::InFlight() const {
  return static_cast<std::size_t>(std::count_if(
      lives_.begin(), lives_.end(), [](const auto& entry) { return entry.second.probe != 0 || entry.second.killing; }));
}

}  // namespace refit::fleet
