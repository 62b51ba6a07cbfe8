// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The bench of the shm transport (settled D12): one policy worker to one reference engine with TP 1, through the real
// payload and HTTP, beside what this machine's memory can do with the same bytes and loads in the same run.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"

namespace refit::runtime {

struct BenchShmOptions {
  std::string model;           // checkpoint folder
  std::string engine_program;  // path of refit-engine
  std::string run_directory;   // logs
  ByteCount load_bytes = 4 * kMiB;
  int warm_up = 2;
  int repetitions = 7;
};

// Seconds are medians over the repetitions, from the start of the pack to the last load released.
struct BenchShmReport {
  ByteCount bytes = 0;
  std::uint64_t tensors = 0;
  std::uint64_t calls = 0;  // `update` calls per refit
  ByteCount load_bytes = 0;
  double seconds = 0;
  double seconds_min = 0;
  double seconds_no_digest = 0;
  double ceiling_seconds = 0;  // interleaved with the runs
  std::vector<double> samples;
  std::vector<double> ceiling_samples;
  double ratio() const { return seconds > 0 ? ceiling_seconds / seconds : 0; }  // 1 is the machine's ceiling
};

// note is told, in one line, what is being done. Starts and ends an engine process of its own.
Result<BenchShmReport> RunBenchShm(const BenchShmOptions& options, const std::function<void(std::string_view)>& note);

}  // namespace refit::runtime
