// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The controller's service and its client: registration for agents and policy workers, sync/status/verify for people.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/control/history.h"
#include "refit/control/slot_action.h"
#include "refit/rpc/agent_rpc.h"
#include "refit/rpc/report.h"

namespace refit::rpc {

// Of commands, registrations and answers. A worker and a controller that do not have the same one refuse each other by
// name when the worker registers (RX-BIND-02); load streams have a number of their own.
inline constexpr std::uint32_t kControlProtocol = 1;

struct AgentRegistration {
  SlotIndex slot;
  Incarnation incarnation;  // zero: the agent is there, its engine is not yet, or no more
  std::string address;
  std::string engine_url;
  std::string engine_version;
  std::string family;
  std::uint32_t tp_size = 1;
  ParameterHashKind hash_kind = ParameterHashKind::kSha256Prefix;
  std::int64_t engine_pid = 0;
  bool attached = false;  // somebody else's engine
  std::uint32_t protocol = kControlProtocol;
};
struct PolicyRegistration {
  PolicyRank rank;
  Incarnation incarnation;
  std::string address;
  std::string source;
  std::uint32_t protocol = kControlProtocol;
};
// What a member of the fleet must know before it acts.
struct Membership {
  RunId run;
  Term term;  // the floor for commands (RX-ID-03)
  std::string profile;
  bool launches_engines = false;  // use_fault_tolerance: the controller says when an engine is launched again
  std::uint32_t protocol = kControlProtocol;
};
struct AgentEnd {  // an agent's engine has ended
  SlotIndex slot;
  Incarnation incarnation;
  Status status;
  bool confirmed_dead = false;  // the whole tree of its processes is reaped
  bool died_in_update = false;
};

struct SyncRequest {
  std::string request_id;
  std::string source;  // empty: each worker's default
  Duration budget{};
};
struct VerifyRequest {
  std::int64_t slot = -1;  // -1: every engine
  std::string model;       // a checkpoint folder; empty: the published version
  Duration budget{};
};

struct SlotRequest {
  control::SlotAction action = control::SlotAction::kAdd;
  SlotIndex slot;
  Duration grace{};  // of requests in flight there; then they are aborted
  Duration budget{};
};

using ProgressSink = std::function<void(const SyncProgress&)>;

// Thread: rpc threads.
class ControllerHandler {
 public:
  virtual ~ControllerHandler() = default;
  virtual Result<Membership> RegisterAgent(const AgentRegistration& registration) = 0;
  virtual Result<Membership> RegisterPolicy(const PolicyRegistration& registration) = 0;
  virtual void AgentGone(const AgentEnd& end) = 0;
  virtual SyncReport Sync(const SyncRequest& request, const ProgressSink& progress) = 0;
  virtual FleetReport GetStatus() = 0;
  virtual VerifyReport Verify(const VerifyRequest& request) = 0;
  virtual Status Shutdown(Duration budget) = 0;  // closes every link of the fleet
  virtual Status ActOnSlot(const SlotRequest& request) = 0;
  virtual Result<control::History> GetHistory() = 0;
};

Result<std::unique_ptr<Server>> ServeController(const std::string& listen, ControllerHandler& handler);

// Thread: any; every call ends by its deadline.
class ControllerClient {
 public:
  static std::unique_ptr<ControllerClient> Connect(const std::string& address);
  virtual ~ControllerClient() = default;

  virtual Result<Membership> RegisterAgent(const AgentRegistration& registration, Duration deadline) = 0;
  virtual Result<Membership> RegisterPolicy(const PolicyRegistration& registration, Duration deadline) = 0;
  virtual Status AgentGone(const AgentEnd& end, Duration deadline) = 0;
  // Waits for the outcome; an error here means that it is not known.
  virtual Result<SyncReport> Sync(const SyncRequest& request, const ProgressSink& progress) = 0;
  virtual Result<FleetReport> GetStatus(Duration deadline) = 0;
  virtual Result<VerifyReport> Verify(const VerifyRequest& request) = 0;
  virtual Status Shutdown(Duration budget) = 0;
  virtual Status ActOnSlot(const SlotRequest& request) = 0;  // until it is done
  virtual Result<control::History> GetHistory(Duration deadline) = 0;
};

}  // namespace refit::rpc
