// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Fault switches: --fault ACTION:ROUTE[:N][:PARAM]. One table of actions and one of routes; which call of a route
// misbehaves, and how, is decided here and carried out by the server. --fault-file FILE holds switches that come and go
// while the engine lives, one a line; FILE.hits gets a line for each fault that happened.

#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"

namespace refit::engine::reference {

enum class FaultAction : std::uint8_t {
  kHang,
  kDie,
  kExit,
  kRefuse,
  kHttp500,
  kBrokenJson,
  kDrip,
  kEcho,
  kClose,
  kSlow,
  kHold,
};

enum class FaultRoute : std::uint8_t {
  kNone,  // routes that no switch names
  kPause,
  kFlush,
  kBegin,
  kUpdate,
  kEnd,
  kContinue,
  kChecksum,
  kLabel,
  kHealth,
  kGenerate,
  kRelease,
  kResumeMemory,
  kServerInfo,
};
inline constexpr std::size_t kFaultRouteCount = 14;

struct Fault {
  FaultAction action = FaultAction::kHang;
  FaultRoute route = FaultRoute::kNone;
  std::uint64_t call = 1;  // the N-th call of the route, 1-based; 0: each
  double parameter = 0;    // slow, hold: seconds; echo: megabytes

  friend bool operator==(const Fault&, const Fault&) = default;
};

// The error lists what there is.
Result<Fault> ParseFault(std::string_view spec);
std::string FaultHelp();  // the tables, for --help

// Thread: any.
class FaultTable {
 public:
  // file: read again at each call of a route; empty: none.
  explicit FaultTable(std::vector<Fault> faults, std::string file = {})
      : faults_(std::move(faults)), file_(std::move(file)) {}

  // Counts a call of the route and says what is wrong with it; the first matching switch wins, the file's first. Calls
  // are counted anew from each change of the file.
  std::optional<Fault> CountCall(FaultRoute route);
  bool Stands(const Fault& fault);  // false once its line left the file

 private:
  void ReadFile();

  const std::vector<Fault> faults_;
  const std::string file_;
  std::mutex mutex_;
  std::string text_;  // what the file held
  std::vector<Fault> file_faults_;
  std::uint64_t calls_[kFaultRouteCount] = {};
};

}  // namespace refit::engine::reference
