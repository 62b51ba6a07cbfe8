// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A stretch of memory and whose it is. Memory of a GPU has an address here like any other (CUDA's unified addresses),
// but only device/cuda.h may touch it: reading it as a host would ends the process.

#pragma once

#include <optional>
#include <string_view>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/base/str.h"

namespace refit::device {

// CUDA's number of a GPU in this process (after CUDA_VISIBLE_DEVICES). Between processes only UUIDs mean anything.
using GpuOrdinal = int;

struct Memory {
  Memory() = default;
  Memory(MutableBytes host) : bytes(host) {}  // NOLINT(google-explicit-constructor): host memory is memory
  Memory(MutableBytes bytes_of_gpu, std::optional<GpuOrdinal> ordinal) : bytes(bytes_of_gpu), gpu(ordinal) {}

  MutableBytes bytes;
  std::optional<GpuOrdinal> gpu;  // nothing: the host's

  ByteCount size() const { return bytes.size(); }
  Memory Part(ByteCount offset, ByteCount length) const { return {bytes.subspan(offset, length), gpu}; }
};

// For code that reads and writes as the host does: refuses a GPU's memory by name.
inline Status CheckHostMemory(const Memory& memory, std::string_view who) {
  if (memory.gpu.has_value()) {
    return InvalidArgument(StrCat(who, " cannot reach the memory of GPU ", *memory.gpu),
                           "use transport cuda_ipc or nixl, or keep the weights on the host");
  }
  return OkStatus();
}

}  // namespace refit::device
