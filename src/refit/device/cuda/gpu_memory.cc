// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <string>

#include "refit/base/check.h"
#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/device/cuda/allocation.h"
#include "refit/device/cuda/cuda_status.h"

namespace refit::device {
namespace {

// CUDA hands out parts of 2 MiB and exports the whole of them: an arena shares its own with nobody.
constexpr ByteCount kGranule = 2 * kMiB;

std::byte* AsBytePointer(void* pointer) { return static_cast<std::byte*>(pointer); }

class CudaArena final : public GpuArena {
 public:
  CudaArena(GpuOrdinal gpu, void* base, ByteCount size) : memory_({AsBytePointer(base), size}, gpu) {}
  ~CudaArena() override {
    if (UseGpu(*memory_.gpu).ok()) {
      cudaFree(memory_.bytes.data());
    }
  }
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;
  Memory memory() const override { return memory_; }

 private:
  const Memory memory_;
};

class CudaPinned final : public PinnedMemory {
 public:
  CudaPinned(void* base, ByteCount size) : memory_(MutableBytes(AsBytePointer(base), size)) {}
  ~CudaPinned() override { cudaFreeHost(memory_.bytes.data()); }
  CudaPinned(const CudaPinned&) = delete;
  CudaPinned& operator=(const CudaPinned&) = delete;
  Memory memory() const override { return memory_; }

 private:
  const Memory memory_;
};

}  // namespace

Result<std::unique_ptr<GpuArena>> GpuArena::Allocate(GpuOrdinal gpu, ByteCount size) {
  REFIT_RETURN_IF_ERROR(FindGpu(gpu).status());
  if (size == 0) {
    return InvalidArgument(StrCat("an arena of 0 bytes on GPU ", gpu));
  }
  REFIT_RETURN_IF_ERROR(UseGpu(gpu));
  void* base = nullptr;
  const cudaError_t error = cudaMalloc(&base, RoundUp(size, kGranule));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0;
    std::size_t total = 0;
    REFIT_RETURN_IF_ERROR(FromCuda(cudaMemGetInfo(&free, &total), StrCat("asking GPU ", gpu)));
    return ResourceExhausted(
        StrCat("GPU ", gpu, " has ", free / kMiB, " MiB free, ", size / kMiB, " MiB are needed"),
        "give the engine a smaller share of the GPU (--mem-fraction-static), or make loads smaller");
  }
  REFIT_RETURN_IF_ERROR(FromCuda(error, StrCat("allocating ", size, " bytes on GPU ", gpu)));
  return std::unique_ptr<GpuArena>(std::make_unique<CudaArena>(gpu, base, size));
}

Result<std::unique_ptr<PinnedMemory>> PinnedMemory::Allocate(ByteCount size) {
  REFIT_RETURN_IF_ERROR(ListGpus().status());
  void* base = nullptr;
  REFIT_RETURN_IF_ERROR(FromCuda(cudaHostAlloc(&base, size, cudaHostAllocPortable),
                                 StrCat("allocating ", size, " bytes of page-locked host memory")));
  return std::unique_ptr<PinnedMemory>(std::make_unique<CudaPinned>(base, size));
}

Result<GpuExport> ExportGpuMemory(const Memory& memory) {
  if (!memory.gpu.has_value()) {
    return InvalidArgument("host memory cannot be exported by CUDA", "copy it into a GpuArena, or use transport shm");
  }
  REFIT_ASSIGN_OR_RETURN(Gpu gpu, FindGpu(*memory.gpu));
  REFIT_RETURN_IF_ERROR(UseGpu(*memory.gpu));
  cudaIpcMemHandle_t handle{};
  const cudaError_t error = cudaIpcGetMemHandle(&handle, memory.bytes.data());
  if (error == cudaErrorInvalidValue || error == cudaErrorNotSupported) {
    cudaGetLastError();
    return InvalidArgument(StrCat("memory of GPU ", gpu.ordinal, " cannot be exported: it is not from cudaMalloc"),
                           "copy it into a GpuArena (torch: not with expandable_segments)");
  }
  REFIT_RETURN_IF_ERROR(FromCuda(error, StrCat("exporting memory of GPU ", gpu.ordinal)));
  REFIT_ASSIGN_OR_RETURN(const MutableBytes allocation, AllocationOf(memory.bytes.data()));
  GpuExport exported;
  exported.gpu_uuid = std::move(gpu.uuid);
  exported.handle.assign(handle.reserved, sizeof(handle.reserved));
  exported.allocation_size = allocation.size();
  exported.offset = static_cast<ByteCount>(memory.bytes.data() - allocation.data());
  if (memory.size() > exported.allocation_size - exported.offset) {
    return InvalidArgument(
        StrCat(memory.size(), " bytes at ", exported.offset, " leave their allocation of ", exported.allocation_size),
        "export each allocation for itself");
  }
  return exported;
}

}  // namespace refit::device
