// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The controller's errands to agents about their engines: launch, shut down, kill, probe, drain. Carries out those
// effects of control::Controller, and says how each ended.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/control/controller.h"
#include "refit/exec/watched.h"
#include "refit/rpc/agent_rpc.h"

namespace refit::runtime {

// Thread: any. Whoever owns the clients lets go of them before this ends.
class EngineErrands {
 public:
  struct Fleet {
    std::function<std::shared_ptr<rpc::AgentClient>(SlotIndex)> find;  // null: no agent is there
    std::function<void(SlotIndex)> on_silence;  // it did not answer: it is heard anew when it does
    std::function<void(control::ControllerEvent)> post;
  };
  // kill_budget: until a kill that nobody confirmed has failed.
  EngineErrands(RunId run, Term term, Duration kill_budget, Fleet fleet);

  void Carry(const control::LaunchEngine& effect);  // waits for an agent where none is there
  void Carry(const control::ShutDownEngine& effect);
  void Carry(const control::KillEngine& effect);
  void Carry(const control::ProbeEngine& effect);
  void Carry(const control::DrainEngine& effect);
  // An agent registered its engine or, with a zero incarnation, only itself.
  void OnAgent(const sync::EngineMember& member);

 private:
  rpc::EngineErrand Make(rpc::ErrandKind kind, Incarnation incarnation, Duration budget) const;
  void TryLaunch(SlotIndex slot);
  void OnLaunch(const control::LaunchEngine& effect, const std::string& address, const Result<rpc::ErrandReply>& reply);
  void Learn(const rpc::ErrandReply& reply);

  const RunId run_;
  const Term term_;
  const Duration kill_budget_;
  const Fleet fleet_;
  exec::Watched<std::map<SlotIndex, control::LaunchEngine>> waiting_;  // for an agent
  exec::Watched<std::map<SlotIndex, sync::EngineMember>> members_;     // that registered last
};

}  // namespace refit::runtime
