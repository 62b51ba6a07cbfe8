// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// CUDA's errors as ours.

#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "refit/base/status.h"
#include "refit/device/memory.h"

namespace refit::device {

// OK for cudaSuccess. `what` is what was tried, on which GPU. Takes the error off the thread's record, so that nobody
// else meets it.
Status FromCuda(cudaError_t error, std::string_view what);

// Makes `gpu` the calling thread's, as every other call needs it. The first time a process does it costs 0.1 to 1 s.
Status UseGpu(GpuOrdinal gpu);

}  // namespace refit::device
