// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The health monitor as a machine (contract §14): probes engines while they serve, grades what it sees, and says which
// life is unhealthy. It never restarts anything and never speaks about a slot, only about a life in it (RC-MON-10).

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"

namespace refit::fleet {

struct HealthOptions {
  Duration interval{};               // I: between probes of one engine
  Duration timeout{};                // T: of one probe; after 2T it has failed, whatever its transport says (RC-MON-02)
  Duration first_wait{};             // F: after a launch; an absolute deadline that nothing moves (RC-MON-05)
  std::uint32_t probe_failures = 1;  // in a row, until a life is unhealthy (RX-QUAR-06)
  std::uint32_t request_failures = 3;  // the same of real requests, on a streak of their own
};

// ---- effects
struct StartProbe {
  SlotIndex slot;
  Incarnation incarnation;
  std::uint64_t probe;
  Duration timeout{};
};
struct Suspected {  // reported only
  SlotIndex slot;
  Incarnation incarnation;
  std::uint32_t failures = 0;
  std::string reason;
};
struct Unhealthy {  // to be quarantined and killed; answered by Health::OnKillEnded
  SlotIndex slot;
  Incarnation incarnation;
  std::string reason;
};
struct Quiet {  // answer to Disable: no probe of this life and no kill caused by one is in flight (RC-MON-04)
  SlotIndex slot;
  Incarnation incarnation;
};
struct MonitorStopped {  // answer to Stop. outlived: a probe is still stuck; its late answer is taken and ignored
                         // (RC-MON-07)
  bool outlived = false;
};
using HealthEffect = std::variant<StartProbe, Suspected, Unhealthy, Quiet, MonitorStopped>;
using HealthEffects = std::vector<HealthEffect>;

enum class HealthPhase : std::uint8_t { kOff, kRunning, kStopping };
std::string_view ToString(HealthPhase phase);

class Health {
 public:
  explicit Health(HealthOptions options);

  void Start(Instant now);                     // without effect where it runs already (RC-MON-08)
  void Stop(Instant now, HealthEffects& out);  // answered at once, or within T + I + 5 s
  // A life that was launched now: its grace is armed, once. Replaces the slot's life before.
  void Watch(SlotIndex slot, Incarnation incarnation, Instant now);
  void Forget(SlotIndex slot, Incarnation incarnation, HealthEffects& out);  // gone; a Disable that waits is answered
  // After `resume` was answered; never for a life that is not the slot's. Withdraws a Disable that still waits.
  void Enable(SlotIndex slot, Incarnation incarnation, Instant now);
  void Disable(SlotIndex slot, Incarnation incarnation, HealthEffects& out);  // answered by Quiet, at once or later
  void OnProbeEnded(SlotIndex slot, Incarnation incarnation, std::uint64_t probe, const Status& status, Instant now,
                    HealthEffects& out);
  void OnKillEnded(SlotIndex slot, Incarnation incarnation, HealthEffects& out);
  // What real requests saw: a success clears their streak alone. While a life is disabled their failures are not its
  // fault.
  void OnRequest(SlotIndex slot, Incarnation incarnation, const Status& status, HealthEffects& out);

  void HandleDeadline(Instant now, HealthEffects& out);
  Instant next_deadline() const;
  HealthPhase phase() const { return phase_; }
  bool probing(SlotIndex slot) const;  // a probe of its life is in flight

 private:
  struct Life {
    Incarnation incarnation;
    Instant grace;               // no probe before
    Instant next_probe;          // kept while disabled: short phases must not put probing off for ever
    std::uint64_t probe = 0;     // in flight; 0: none
    Instant probe_deadline;      // of that one
    std::uint32_t failures = 0;  // of probes, in a row
    std::uint32_t request_failures = 0;
    bool enabled = false;
    bool disabling = false;  // Quiet is owed
    bool unhealthy = false;  // said so; nothing brings it back
    bool killing = false;    // since then, until OnKillEnded
  };

  Life* Find(SlotIndex slot, Incarnation incarnation);
  bool MayProbe(const Life& life) const;
  Instant DueAt(const Life& life) const;
  void EndProbe(SlotIndex slot, Life& life, const Status& status, HealthEffects& out);
  void Judge(SlotIndex slot, Life& life, const Status& status, HealthEffects& out);
  static void SayUnhealthy(SlotIndex slot, Life& life, std::string reason, HealthEffects& out);
  static void AnswerDisable(SlotIndex slot, Life& life, HealthEffects& out);
  void AnswerStop(HealthEffects& out);
  void EndStop(std::size_t in_flight, HealthEffects& out);
  std::size_t InFlight() const;

  HealthOptions options_;
  HealthPhase phase_ = HealthPhase::kOff;
  Instant stop_deadline_ = kNever;
  std::uint64_t last_probe_ = 0;
  std::map<SlotIndex, Life> lives_;
  std::vector<Quiet> owed_;  // to lives that were replaced, at the next deadline
};

}  // namespace refit::fleet
