// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What becomes of an engine whose command failed, that was lost, or that is slow: once more, left out, or the end of
// the attempt.

#include <algorithm>
#include <chrono>
#include <utility>

#include "refit/base/backoff.h"
#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/sync/envelope.h"
#include "refit/sync/session.h"

namespace refit::sync {
namespace {

constexpr std::uint32_t kBindTries = 2;    // RX-BIND-04
constexpr std::uint32_t kSlowWindows = 3;  // RX-TIME-02
constexpr std::size_t kRetryShare = 5;     // one command in so many may be a retry (RX-TIME-03)
constexpr BackoffLimits kBackoff = {std::chrono::milliseconds(100), std::chrono::milliseconds(3200)};

}  // namespace

// Whether the same thing may go well next time: what failed is the way, not what went over it (RX-XFER-11).
bool Session::IsOfTheWay(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kDataLoss || REFIT_MUTANT("RX-XFER-11/retry-all", false, true);
}

void Session::OnAgentFailed(Engine& engine, AgentCommandKind kind, const AgentReply& reply, Instant now,
                            SessionEffects& out) {
  const SlotIndex slot = engine.member.slot;
  switch (kind) {
    case AgentCommandKind::kHold:
      return Lose(engine, kind, reply.status.WithContext("cannot be held"), out);  // its kill keeps it out of traffic
    case AgentCommandKind::kAbort:
      notes_.push_back(StrCat("engine ", slot, ": abort: ", reply.status.message()));
      return;
    case AgentCommandKind::kResumeOld:
      notes_.push_back(StrCat("engine ", slot, " stays paused: ", reply.status.message()));
      if (REFIT_MUTANT("RC-SESS-10/cleanup-error-is-primary", false, true)) {
        failure_ = reply.status;
      }
      return;
    case AgentCommandKind::kActivate:
      // Refused, and consistent: once more, then its profile decides (RX-COMMIT-06).
      if (options_.profile.on_engine_loss == OnEngineLoss::kDetach) {
        if (!std::exchange(engine.activated_twice, true) && MayRetry()) {
          engine.not_before = now + NextBackoff(0);
          return;
        }
        return Lose(engine, kind, reply.status, out);
      }
      return FailEngine(engine, kind, reply.status);
    case AgentCommandKind::kBind: return OnBindFailed(engine, reply.status, now);
    case AgentCommandKind::kAttempt:
      if (reply.kind == ReplyKind::kUnbound) {
        engine.member.links.clear();
        engine.step = 0;
        return OnBindFailed(engine, reply.status, now);
      }
      return FailEngine(engine, kind, reply.status);
    case AgentCommandKind::kTransfer:
      if (reply.status.code() == StatusCode::kAborted && attempt_failure_.has_value()) {
        return;  // we ended it ourselves
      }
      if (IsOfTheWay(reply.status) && options_.profile.max_attempts > 1) {
        engine.failed_at = {kind, reply.status.code()};
        ++engine.link_failures;
        return FailAttempt(reply.status.WithContext(StrCat("engine ", slot)));
      }
      return FailEngine(engine, kind, reply.status);
    default: return FailEngine(engine, kind, reply.status);
  }
}

void Session::OnBindFailed(Engine& engine, const Status& status, Instant now) {
  bind_failed_ = true;
  if (options_.profile.on_bind_failure == OnBindFailure::kRetry && ++engine.bind_tries < kBindTries && MayRetry()) {
    engine.not_before = now + NextBackoff(engine.bind_tries - 1);
    return;  // its step is still to be done
  }
  engine.suspect = options_.profile.on_bind_failure == OnBindFailure::kRetry;
  FailEngine(engine, AgentCommandKind::kBind, status);
}

// RX-TIME-02: slow is not dead. Who is slow is named; who is slow while all others are not, holds up the whole fleet.
void Session::OnDelivered(const Delivered& event, Instant now, SessionEffects& out) {
  Engine* const engine = Find(event.slot, event.incarnation);
  const auto receives = [](const Engine& each) {
    return !each.gone && std::any_of(each.outstanding.begin(), each.outstanding.end(), [](const auto& command) {
      return command.second.kind == AgentCommandKind::kTransfer;
    });
  };
  if (options_.min_rate == 0 || engine == nullptr || !receives(*engine) || attempt_failure_.has_value() ||
      failure_.has_value()) {
    return;
  }
  if (engine->window_start == kNever) {
    engine->window_start = now;
    engine->window_bytes = event.bytes;
  }
  const Duration window = now - engine->window_start;
  if (window < options_.rate_window) {
    return;
  }
  const ByteCount bytes = event.bytes - std::min(event.bytes, engine->window_bytes);
  const double rate = static_cast<double>(bytes) / ToSeconds(window);
  engine->window_start = now;
  engine->window_bytes = event.bytes;
  engine->slow_windows = rate < static_cast<double>(options_.min_rate) ? engine->slow_windows + 1 : 0;
  if (engine->slow_windows != kSlowWindows) {
    return;
  }
  const Status slow = Unavailable(StrCat("engine ", event.slot, " is slow: ", static_cast<std::uint64_t>(rate),
                                         " bytes/s in the third window below ", options_.min_rate),
                                  "look at its link and its host");
  notes_.push_back(slow.message());
  const bool alone = engines_.size() > 1 && std::none_of(engines_.begin(), engines_.end(), [&](const Engine& other) {
                       return &other != engine && other.slow_windows > 0;
                     });
  if (REFIT_MUTANT("RX-TIME-02/quarantine-the-slow", alone, true) &&
      options_.profile.on_engine_loss == OnEngineLoss::kDetach) {
    Lose(*engine, AgentCommandKind::kTransfer, slow, out);
  }
}

// Retries of single commands are few, however many fail: at most one in kRetryShare of what a refit sends.
bool Session::MayRetry() {
  const std::size_t planned = engines_.size() * (Envelope().size() + 1) + policies_.size() * 2;
  if (REFIT_MUTANT("RX-TIME-03/no-budget", retries_ >= planned / kRetryShare, false)) {
    return false;
  }
  ++retries_;
  return true;
}

// Exponential, half of it drawn.
Duration Session::NextBackoff(std::uint32_t retry) {
  return REFIT_MUTANT("RX-TIME-03/tight-loop", Backoff(kBackoff, retry, prng_), Duration(0));
}

void Session::OnAgentLost(const AgentLost& event, SessionEffects& out) {
  Engine* const engine = Find(event.slot, event.incarnation);
  if (engine == nullptr || engine->gone) {
    return;
  }
  CountDeath(event.died_in_update);
  const AgentCommandKind during =
      engine->outstanding.empty() ? AgentCommandKind::kKill : engine->outstanding.begin()->second.kind;
  Lose(*engine, during, event.status, out);
}

// Of the incarnation that is about to be lost (C15).
void Session::CountDeath(bool in_update) {
  deaths_in_update_ += REFIT_MUTANT("RX-QUAR-08/count-any-death", in_update, true) ? 1U : 0U;
}

// The incarnation is over: no call to it but kill (C2), its pairs are detached, the others go on (C6).
void Session::Lose(Engine& engine, AgentCommandKind during, const Status& status, SessionEffects& out) {
  opened_ = opened_ || during == AgentCommandKind::kTransfer;
  engine.gone = true;
  engine.outcome.killed = true;
  engine.outcome.serving = false;
  engine.outcome.residue = Residue::Unknown();
  engine.outstanding.clear();
  out.emplace_back(Quarantine{engine.member.slot, engine.member.incarnation, status.message()});
  if (phase_ == SessionPhase::kUndoing) {
    notes_.push_back(status.WithContext(StrCat("engine ", engine.member.slot)).message());
    return;
  }
  if (deaths_in_update_ >= kDeathsInUpdate && phase_ < SessionPhase::kDeciding &&
      options_.profile.on_engine_loss == OnEngineLoss::kDetach &&
      REFIT_MUTANT("RX-QUAR-08/count-no-death", true, false)) {
    systemic_ = true;
    Fail(Aborted(StrCat("SYSTEMIC: ", deaths_in_update_, " engines died of this update, the last: ", status.message()),
                 "look at the weights before the next sync; no further engine was given them"),
         kNobody);
  }
  FailEngine(engine, during, status);
}

void Session::FailEngine(Engine& engine, AgentCommandKind during, const Status& status) {
  const Status named = status.WithContext(StrCat("engine ", engine.member.slot));
  const bool first = engine.outcome.status.ok();
  if (first) {
    engine.outcome.status = named;
    if (!engine.gone) {  // a death is judged by itself (C15)
      engine.failed_at = {during, status.code()};
    }
  }
  if (!append_sent_ && !engine.gone && options_.profile.on_engine_loss == OnEngineLoss::kDetach && FailedAlike()) {
    systemic_ = true;
    return Fail(named.WithContext("SYSTEMIC: most engines failed alike"), kNobody);
  }
  const bool detached = options_.profile.on_engine_loss == OnEngineLoss::kDetach && !failure_.has_value() &&
                        Members().size() >= std::max<std::size_t>(MembersNeeded(), 1);
  if (append_sent_ || detached) {
    if (first) {
      notes_.push_back(named.message());
    }
    return;
  }
  insufficient_ = insufficient_ ||
                  (!failure_.has_value() && engine.gone && options_.profile.on_engine_loss == OnEngineLoss::kDetach);
  Fail(named, kFirstEngine + engine.member.slot.value());
}

// More than half of the engines, and at least two, failed the same step alike in this attempt (RX-QUAR-05).
bool Session::FailedAlike() const {
  for (const Engine& engine : engines_) {
    const auto same = std::count_if(engines_.begin(), engines_.end(), [&engine](const Engine& other) {
      return engine.failed_at.has_value() && other.failed_at == engine.failed_at;
    });
    if (same >= 2 && static_cast<std::size_t>(same) * 2 > engines_.size()) {
      return REFIT_MUTANT("RX-QUAR-05/kill-all", true, false);
    }
  }
  return false;
}

// Whose bind failed for good is quarantined, unless most fared alike (RX-BIND-04, RX-QUAR-05).
void Session::LoseSuspects(SessionEffects& out) {
  const bool alike = FailedAlike();
  for (Engine& engine : engines_) {
    if (std::exchange(engine.suspect, false) && !engine.gone && !alike) {
      Lose(engine, AgentCommandKind::kBind, engine.outcome.status, out);
    }
  }
}

// A pair failed although both its ends live: nobody can go on in this attempt (C6).
void Session::FailAttempt(const Status& status) {
  if (attempt_failure_.has_value()) {
    notes_.push_back(status.message());
  } else {
    attempt_failure_ = status;
  }
}

}  // namespace refit::sync
