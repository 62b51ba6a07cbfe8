// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// "cuda_ipc:<GPU UUID>:<handle in hexadecimal>:<allocation size>:<offset>:<size>": exported GPU memory as a peer names
// it. Built without CUDA too: an agent only passes it on to its engine's ranks where they read in place.

#pragma once

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/device/cuda.h"
#include "refit/transport/transport.h"

namespace refit::transport {

struct CudaIpcMemory {
  device::GpuExport exported;
  ByteCount size = 0;
};

Descriptor MakeCudaIpcDescriptor(const CudaIpcMemory& memory);
Result<CudaIpcMemory> ParseCudaIpcDescriptor(const Descriptor& descriptor);  // safe on text from outside

}  // namespace refit::transport
