// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/engine_owner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/observe/log.h"
#include "refit/runtime/reply_desk.h"

namespace refit::runtime {
namespace {

constexpr Duration kLoadInterval = std::chrono::milliseconds(100);
constexpr Duration kLoadDeadline = std::chrono::seconds(2);
constexpr int kIdleReadings = 2;  // one may miss a request that is just coming in

}  // namespace

// ---- the loop

void EngineOwner::Join(RunId run, Term term) {
  state_.With([&](State& state) {
    state.highest_term = state.run == run ? std::max(state.highest_term, term) : term;
    state.joined = true;
    state.run = run;
  });
}

Status EngineOwner::BeginLaunch(std::shared_ptr<EngineProcess> process) {
  return state_.With([&process](State& state) {
    if (state.stopping) {
      return Status(StatusCode::kCancelled, "the agent is being stopped");
    }
    state.wanted = false;
    state.process = std::move(process);
    state.incarnation = {};
    return OkStatus();
  });
}

void EngineOwner::Admit(std::shared_ptr<EngineLife> life) {
  state_.With([&life](State& state) {
    state.incarnation = life->incarnation();
    state.life = std::move(life);
    if (state.stopping) {  // while it was launched: nobody else will tell it
      state.life->Stop();
    }
  });
}

void EngineOwner::Answer(State& state, const Status& status) {
  for (const Ticket& ticket : std::exchange(state.waiting, {})) {
    static_cast<void>(ticket->Push(status));
  }
}

void EngineOwner::EndLaunch(const Status& status) {
  state_.With([&status](State& state) {
    state.wanted = false;
    Answer(state, status);
  });
}

void EngineOwner::Dismiss() {
  const auto life = state_.With([](State& state) { return std::exchange(state.life, nullptr); });
}

void EngineOwner::Buried() {
  state_.With([](State& state) {
    state.process.reset();
    state.incarnation = {};
  });
}

void EngineOwner::Retire(const Status& why) {
  state_.With([&why](State& state) {
    state.retired = why;
    Answer(state, why);
  });
}

bool EngineOwner::AwaitOrder(Instant deadline) {
  static_cast<void>(state_.Wait([](const State& state) { return state.stopping || state.wanted; }, deadline));
  return state_.With([](const State& state) { return state.wanted && !state.stopping; });
}

bool EngineOwner::AwaitStop(Instant deadline) {
  return state_.Wait([](const State& state) { return state.stopping; }, deadline);
}

bool EngineOwner::stopping() const {
  return state_.With([](const State& state) { return state.stopping; });
}

void EngineOwner::Stop() {
  const auto launching = state_.With([](State& state) {
    state.stopping = true;
    Answer(state, Status(StatusCode::kCancelled, "the agent is being stopped"));
    if (state.life != nullptr) {
      state.life->Stop();
    }
    return state.life == nullptr ? state.process : nullptr;
  });
  if (launching != nullptr) {
    launching->Kill(exec::Now());
  }
}

// ---- rpc threads

std::shared_ptr<EngineLife> EngineOwner::life() const {
  return state_.With([](const State& state) { return state.life; });
}

void EngineOwner::Heard(Term highest_term) {
  state_.With([highest_term](State& state) { state.highest_term = std::max(state.highest_term, highest_term); });
}

Status EngineOwner::CheckFence(const rpc::EngineErrand& errand, State& state) {
  if (errand.run != state.run) {
    return FailedPrecondition(StrCat("stale: ", ToString(errand.kind), " of run ", ToHex(errand.run),
                                     ", this agent is in run ", ToHex(state.run)),
                              "start the agent again, for that run");
  }
  if (REFIT_MUTANT("RX-LEAD-02/errand-of-any-term", errand.term < state.highest_term, false)) {
    return FailedPrecondition(
        StrCat("stale: ", ToString(errand.kind), " of term ", errand.term, ", heard of term ", state.highest_term),
        "the sender has been superseded");
  }
  state.highest_term = errand.term;
  return OkStatus();
}

rpc::ErrandReply EngineOwner::Run(const rpc::EngineErrand& errand) {
  rpc::ErrandReply reply;
  std::shared_ptr<EngineProcess> process;
  std::shared_ptr<EngineLife> life;
  const auto ticket = std::make_shared<exec::Mailbox<Status>>(1);
  bool runs = false;
  // The controller may hear of this agent before the agent hears from it which run it has joined.
  static_cast<void>(state_.Wait([](const State& state) { return state.joined || state.stopping; },
                                exec::Now() + std::min<Duration>(errand.budget, kReplyMargin)));
  // The fence and what it lets through are one step (RX-LEAD-02): afterwards everything is about that incarnation.
  state_.With([&](State& state) {
    reply.status = CheckFence(errand, state);
    reply.highest_term = state.highest_term;
    if (!reply.status.ok()) {
      return;
    }
    runs = state.life != nullptr;
    const bool meant = state.incarnation == errand.incarnation;
    process = meant ? state.process : nullptr;
    life = meant ? state.life : nullptr;
    if (errand.kind == rpc::ErrandKind::kLaunch && state.retired.has_value()) {
      reply.status = *state.retired;
    } else if (errand.kind == rpc::ErrandKind::kLaunch && !runs) {
      state.wanted = true;
      state.waiting.push_back(ticket);
    } else if (errand.kind == rpc::ErrandKind::kKill && errand.incarnation.is_zero()) {
      state.wanted = false;
      Answer(state, Aborted("the launch was called off"));
    }
  });
  if (!reply.status.ok()) {
    return reply;
  }
  if (errand.kind != rpc::ErrandKind::kProbe) {
    observe::LogInfo(StrCat("engine ", slot_, ": the controller says ", ToString(errand.kind)));
  }
  const Instant deadline = exec::Now() + errand.budget;
  switch (errand.kind) {
    case rpc::ErrandKind::kLaunch: reply.status = runs ? OkStatus() : Launch(ticket, errand.budget); break;
    case rpc::ErrandKind::kShutDown: reply.gone = process == nullptr || process->ShutDown(deadline); break;
    case rpc::ErrandKind::kKill: reply.gone = process == nullptr || process->Kill(deadline); break;
    case rpc::ErrandKind::kProbe:
      reply.status = life == nullptr ? Unavailable(StrCat("engine ", slot_, " of that incarnation is gone"))
                                     : life->Probe(errand.budget);
      break;
    case rpc::ErrandKind::kDrain:
      reply.status = life == nullptr ? Unavailable(StrCat("engine ", slot_, " of that incarnation is gone"))
                                     : Drain(*life, deadline);
      break;
  }
  return reply;
}

// The engine itself says what it runs: a router that was told to send it nobody does not know (settled C9).
Status EngineOwner::Drain(EngineLife& life, Instant deadline) const {
  for (int idle = 0; idle < kIdleReadings;) {
    const auto requests = life.RequestsInFlight(kLoadDeadline);
    idle = requests.has_value() && *requests == 0 ? idle + 1 : 0;
    if (exec::Now() >= deadline) {
      return requests.has_value() ? DeadlineExceeded(StrCat("engine ", slot_, " runs ", *requests, " requests still"))
                                  : requests.status();
    }
    if (state_.Wait([](const State& state) { return state.stopping; },
                    std::min(deadline, exec::Now() + kLoadInterval))) {
      return {StatusCode::kCancelled, "the agent is being stopped"};
    }
  }
  return OkStatus();
}

Status EngineOwner::Launch(const Ticket& ticket, Duration budget) {
  const auto status = ticket->Pop(exec::Now() + budget + kReplyMargin);
  return status.value_or(DeadlineExceeded(StrCat("engine ", slot_, " did not come up within its budget")));
}

}  // namespace refit::runtime
