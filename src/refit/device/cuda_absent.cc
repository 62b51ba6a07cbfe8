// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// device/cuda.h where CUDA's compiler is missing: a complete product for host memory.

#include "refit/base/str.h"
#include "refit/device/cuda.h"

namespace refit::device {
namespace {

Status Absent() {
  return Unimplemented("this build of refit has no CUDA",
                       "configure with CUDA's compiler (nvcc) on the PATH and build again");
}

}  // namespace

bool BuiltWithCuda() { return false; }
Result<std::vector<Gpu>> ListGpus() { return Absent(); }
Result<Gpu> FindGpu(GpuOrdinal /*ordinal*/) { return Absent(); }
Result<GpuExport> ExportGpuMemory(const Memory& /*memory*/) { return Absent(); }
Result<std::unique_ptr<GpuArena>> GpuArena::Allocate(GpuOrdinal /*gpu*/, ByteCount /*size*/) { return Absent(); }
Result<std::unique_ptr<PinnedMemory>> PinnedMemory::Allocate(ByteCount /*size*/) { return Absent(); }
Result<std::unique_ptr<GpuMapping>> GpuMapping::Open(GpuOrdinal /*gpu*/, const GpuExport& /*exported*/) {
  return Absent();
}
Result<std::unique_ptr<GpuQueue>> GpuQueue::Make(GpuOrdinal /*gpu*/) { return Absent(); }

}  // namespace refit::device
