// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the controller tells people: outcomes, the state of the fleet, proofs. Plain values; times in seconds.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/sync/command.h"
#include "refit/sync/residue.h"
#include "refit/weights/rank_hashes.h"

namespace refit::rpc {

// What one lane ("engine 0", "policy 1") was doing; seconds since the sync was accepted.
struct Span {
  std::string lane;
  std::string name;
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct EngineReport {
  SlotIndex slot;
  Incarnation incarnation;
  Status status;  // OK: serves the report's version
  sync::Residue residue = sync::Residue::Unknown();
  bool serving = false;
  bool killed = false;
  sync::TransferTotals totals;
  double stall_seconds = 0;  // pause sent to resume answered; 0: never paused
};

struct SyncReport {
  std::string request_id;
  std::string source;
  Status status;
  WeightVersion version;
  bool committed = false;
  bool latched = false;
  Digest digest;
  sync::TransferTotals published;
  double seconds = 0;  // sync accepted to last resume answered
  std::vector<EngineReport> engines;
  std::vector<std::string> notes;
  std::vector<Span> spans;
};

struct SyncProgress {
  std::string phase;
  ByteCount bytes_total = 0;  // to deliver, over ranks of all engines; 0: not known yet
  ByteCount bytes_delivered = 0;
};

struct SlotReport {
  SlotIndex slot;
  Incarnation incarnation;  // zero: nobody registered
  std::string engine_url;
  std::string engine_version;
  std::int64_t engine_pid = 0;
  std::uint32_t tp_size = 0;
  sync::Residue residue = sync::Residue::Unknown();
  bool serving = false;
  WeightVersion version;
  std::string last_error;
  std::string state;    // fleet::SlotState in words
  std::string service;  // "in service", "draining", "drained", "removing", "restarting"
  bool in_service = true;
  std::string doing{};        // the command that runs there; empty: none
  ByteCount bytes_total = 0;  // of the running transfer, over ranks; 0: none runs
  ByteCount bytes_delivered = 0;
};

struct PolicyReport {
  PolicyRank rank;
  Incarnation incarnation;  // zero: not registered
  std::string address;
  std::string source;
};

struct RouterReport {
  std::string url;            // empty: the job has none
  Status status;              // OK: it answers
  std::uint32_t entries = 0;  // that it lists
  std::int64_t pid = 0;       // 0: it does not run, or is not ours
};

struct FleetReport {
  RunId run;
  Term term;
  std::string profile;
  std::string phase;
  WeightVersion committed;
  bool stale = true;
  Status latch;  // OK: not latched
  std::vector<SlotReport> slots;
  std::vector<PolicyReport> policies;
  ByteCount bytes_total = 0;
  ByteCount bytes_delivered = 0;
  double transfer_seconds = 0;  // since the running transfer began; 0: none runs
  RouterReport router;
};

struct EngineVerification {
  SlotIndex slot;
  Status status;  // of reading its hashes
  std::uint32_t rank_count = 0;
  std::uint64_t parameter_count = 0;  // over ranks
  std::vector<weights::HashDifference> differences;
};

struct VerifyReport {
  Status status;
  bool verified = false;
  bool unproven = false;  // nobody knows what this version must hash to
  WeightVersion version;
  std::vector<EngineVerification> engines;
};

}  // namespace refit::rpc
