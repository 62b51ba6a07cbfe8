// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What this build has and what this host can do: the facts behind `refit doctor`.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"

namespace refit::runtime {

struct DoctorOptions {
  std::string engine_program;  // refit-engine beside us
  std::string model_folder;    // of the demo
  std::string nixl_library;    // as transport.nixl.library; empty: not asked for
  enum class Stale : std::uint8_t { kList, kRemove } stale = Stale::kList;
};

struct DoctorReport {
  std::vector<std::string> transports;
  std::vector<std::string> engine_kinds;
  std::uint32_t core_count = 0;  // that this process may use
  ByteCount memory_total = 0;
  ByteCount memory_available = 0;
  ByteCount shared_memory_total = 0;  // /dev/shm
  ByteCount shared_memory_free = 0;
  bool has_avx2 = false;
  bool has_fma = false;
  bool has_sha = false;
  std::vector<std::string> gpu_devices;
  std::string nixl;                          // its version and place, or why it cannot be used
  std::string engine_program;                // empty: not there
  std::string demo_model;                    // empty: not cached
  std::vector<std::string> stale_objects;    // shared memory of dead owners, found now
  std::vector<std::string> removed_objects;  // by kRemove
  std::vector<std::string> advice;           // one line each: what to change, and why
};

DoctorReport Examine(const DoctorOptions& options);

}  // namespace refit::runtime
