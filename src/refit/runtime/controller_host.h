// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The controller process: control::Controller with its service, its clients of every agent and policy worker, and the
// proofs. Never touches weight bytes (RC-ROLE-05).

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/fleet/health.h"
#include "refit/runtime/router_desk.h"
#include "refit/sync/profile.h"

namespace refit::runtime {

// When the hashes that a version must show are computed (settled D8).
enum class VerifyWhen : std::uint8_t { kAlways, kOnRequest };

struct ControllerHostOptions {
  std::string listen = "127.0.0.1:0";
  // Of term and journal, on a disk of this host. Empty: in memory, so that what was decided ends with this controller.
  std::string state_directory{};
  Duration takeover_after = std::chrono::seconds(1);  // how long a living predecessor may take to end by itself
  sync::Profile profile = sync::kResilient;
  std::vector<SlotIndex> slots{};
  std::vector<PolicyRank> policy_ranks{};
  // Probing, killing and launching engines (RC-CFG-13); off: agents launch theirs again themselves.
  bool use_fault_tolerance = false;
  fleet::HealthOptions health{};                        // probe_failures is the profile's
  Duration launch_deadline = std::chrono::seconds(60);  // of an agent's launch, until its engine answers
  Duration catch_up_deadline = std::chrono::seconds(60);
  VerifyWhen verify = VerifyWhen::kOnRequest;
  Duration verify_deadline = std::chrono::seconds(120);
  Duration stall_deadline = std::chrono::seconds(30);  // see control::ControllerOptions
  ByteCount min_rate = 0;                              // per second
  std::optional<RouterOptions> router{};  // that spreads generation over the engines; none: nobody is told of them
  // This controller may not act any more: its process must end with that code (5: the journal is in doubt, 6: another
  // controller has taken over). Thread: the loop, which does nothing afterwards.
  std::function<void(int exit_code)> on_stop{};
};

class ControllerHost {
 public:
  // Takes over from whoever holds the term. DATA_LOSS where the journal cannot be believed.
  static Result<std::unique_ptr<ControllerHost>> Start(ControllerHostOptions options);
  virtual ~ControllerHost() = default;
  virtual const std::string& address() const = 0;
  virtual std::string router_url() const = 0;  // empty: there is none
};

}  // namespace refit::runtime
