// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/fleet/kill_path.h"

#include "refit/base/mutant.h"

namespace refit::fleet {

std::string_view ToString(KillPhase phase) {
  switch (phase) {
    case KillPhase::kIdle: return "idle";
    case KillPhase::kDeregistering: return "deregistering";
    case KillPhase::kShuttingDown: return "shutting down";
    case KillPhase::kKilling: return "killing";
    case KillPhase::kEnded: return "ended";
  }
  return "?";
}

KillPath::KillPath(Duration graceful) : graceful_(graceful) {}

void KillPath::Start(Instant now, KillPathEffects& out) {
  if (phase_ == KillPhase::kIdle) {
    Enter(KillPhase::kDeregistering, now, out);
  }
}

void KillPath::OnDeregistered(Instant now, KillPathEffects& out) {
  if (phase_ == KillPhase::kDeregistering) {
    Enter(REFIT_MUTANT("RC-REC-04/skip-graceful", KillPhase::kShuttingDown, KillPhase::kKilling), now, out);
  }
}

// However it ended: the hard kill is what gets grandchildren, and what proves death (RC-KILL-01).
void KillPath::OnShutDown(Instant now, KillPathEffects& out) {
  if (phase_ != KillPhase::kShuttingDown) {
    return;
  }
  if (REFIT_MUTANT("RC-KILL-01/shutdown-is-enough", false, true)) {
    return End(true, out);
  }
  Enter(KillPhase::kKilling, now, out);
}

void KillPath::OnKilled(bool confirmed, KillPathEffects& out) {
  if (phase_ == KillPhase::kKilling) {
    End(REFIT_MUTANT("RC-KILL-05/clear-anyway", confirmed, true), out);
  }
}

void KillPath::OnDeath(KillPathEffects& out) {
  if (phase_ != KillPhase::kIdle && phase_ != KillPhase::kEnded) {
    End(true, out);
  }
}

void KillPath::HandleDeadline(Instant now, KillPathEffects& out) {
  if (deadline_ > now) {
    return;
  }
  switch (phase_) {
    case KillPhase::kDeregistering: return Enter(KillPhase::kShuttingDown, now, out);
    case KillPhase::kShuttingDown:
      if (REFIT_MUTANT("RC-KILL-01/one-guard", false, true)) {
        return End(false, out);
      }
      return Enter(KillPhase::kKilling, now, out);
    case KillPhase::kKilling: return End(false, out);
    case KillPhase::kIdle:
    case KillPhase::kEnded: return;
  }
}

Instant KillPath::next_deadline() const { return deadline_; }

void KillPath::Enter(KillPhase phase, Instant now, KillPathEffects& out) {
  phase_ = phase;
  deadline_ = now + graceful_;
  switch (phase) {
    case KillPhase::kDeregistering:
      deadline_ = REFIT_MUTANT("RC-KILL-03/wait-for-the-router", deadline_, kNever);
      out.emplace_back(Deregister{});
      return;
    case KillPhase::kShuttingDown:
      deadline_ = REFIT_MUTANT("RC-REC-04/unbounded-graceful", deadline_, kNever);
      out.emplace_back(ShutDown{graceful_});
      return;
    case KillPhase::kKilling: out.emplace_back(HardKill{}); return;
    case KillPhase::kIdle:
    case KillPhase::kEnded: return;
  }
}

void KillPath::End(bool confirmed, KillPathEffects& out) {
  phase_ = KillPhase::kEnded;
  deadline_ = kNever;
  out.emplace_back(KillPathEnded{confirmed});
}

}  // namespace refit::fleet
