// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What an agent knows of its one engine, shared by its loop, which launches and buries, and by rpc threads, which bring
// commands and the controller's errands: launch, shut down, kill, probe.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/exec/mailbox.h"
#include "refit/exec/watched.h"
#include "refit/rpc/agent_rpc.h"
#include "refit/runtime/engine_life.h"
#include "refit/runtime/engine_process.h"

namespace refit::runtime {

class EngineOwner {
 public:
  explicit EngineOwner(SlotIndex slot) : slot_(slot) {}

  // ---- the loop
  // Errands of another run, or of a controller older than the newest that was heard, are refused (RX-LEAD-02).
  void Join(RunId run, Term term);
  // CANCELLED where the agent is being stopped.
  Status BeginLaunch(std::shared_ptr<EngineProcess> process);
  void Admit(std::shared_ptr<EngineLife> life);
  void EndLaunch(const Status& status);  // tells whoever asked for it
  void Dismiss();                        // no command reaches the life any more; its process is still ours
  void Buried();                         // the whole tree of that process is gone
  void Retire(const Status& why);        // launches are refused
  // Until somebody wants a launch. False when stopping, or at the deadline.
  bool AwaitOrder(Instant deadline);
  bool AwaitStop(Instant deadline);
  bool stopping() const;
  void Stop();

  // ---- rpc threads
  std::shared_ptr<EngineLife> life() const;
  void Heard(Term highest_term);
  rpc::ErrandReply Run(const rpc::EngineErrand& errand);

 private:
  using Ticket = std::shared_ptr<exec::Mailbox<Status>>;  // of whoever waits for a launch
  struct State {
    bool joined = false;
    RunId run;
    Term highest_term;
    bool stopping = false;
    bool wanted = false;
    std::optional<Status> retired;
    std::vector<Ticket> waiting;
    std::shared_ptr<EngineProcess> process;  // from its launch until its tree is gone
    Incarnation incarnation;                 // of that process; zero: not known yet
    std::shared_ptr<EngineLife> life;        // that commands reach
  };

  static Status CheckFence(const rpc::EngineErrand& errand, State& state);
  Status Launch(const Ticket& ticket, Duration budget);
  Status Drain(EngineLife& life, Instant deadline) const;
  static void Answer(State& state, const Status& status);

  const SlotIndex slot_;
  mutable exec::Watched<State> state_;
};

}  // namespace refit::runtime
