// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures what a link moves, without an engine: a policy worker's sender in a process of its own, an agent's receiver
// here, real announcements and releases over gRPC, digests on. Its ceiling comes from the same link: one read of the
// same bytes, nothing packed, announced or checked.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/device/memory.h"
#include "refit/transport/transport_options.h"

namespace refit::runtime {

struct BenchLinkOptions {
  std::string model;      // checkpoint folder
  std::string transport;  // "cuda_ipc", "nixl"
  transport::TransportOptions transports;
  std::vector<std::string> source_command;  // starts ServeBenchSource with the same model and transports
  std::string log_path;                     // of that process
  std::optional<device::GpuOrdinal> into;   // nothing: the host's memory
  ByteCount piece_bytes = 0;
  int warm_up = 2;
  int repetitions = 9;
};

// Seconds are medians: from the request for the stream until its last byte is in place, checked and released.
struct BenchLinkReport {
  ByteCount bytes = 0;
  std::uint64_t tensors = 0;
  std::uint64_t pieces = 0;
  ByteCount piece_bytes = 0;
  double seconds = 0;
  double seconds_min = 0;
  double ceiling_seconds = 0;  // interleaved with the runs
  // Medians, from the same beginning: where the time goes.
  double opened_seconds = 0;           // the source had opened its stream
  double first_announced_seconds = 0;  // its first piece was packed and known here
  double last_announced_seconds = 0;
  double last_landed_seconds = 0;  // and after that only the last checks
  // What the link itself took, once it had something to move.
  double link_seconds() const { return last_landed_seconds - first_announced_seconds; }
  std::vector<double> samples;
  std::vector<double> ceiling_samples;
  double ratio() const { return seconds > 0 ? ceiling_seconds / seconds : 0; }
};
Result<BenchLinkReport> RunBenchLink(const BenchLinkOptions& options,
                                     const std::function<void(std::string_view)>& note);

// The source's process says so, with its address after it.
inline constexpr char kBenchSourceReady[] = "refit bench source: ready address=";

struct BenchSourceOptions {
  std::string model;
  std::optional<device::GpuOrdinal> gpu;  // where its tensors are kept
  transport::TransportOptions transports;
};
// The other end: serves streams until `wait` returns; `ready` is told the address.
Status ServeBenchSource(const BenchSourceOptions& options, const std::function<void(std::string_view)>& ready,
                        const std::function<void()>& wait);

}  // namespace refit::runtime
