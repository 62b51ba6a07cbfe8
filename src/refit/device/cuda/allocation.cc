// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/cuda/allocation.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "refit/base/str.h"
#include "refit/device/cuda/cuda_status.h"

namespace refit::device {

Result<MutableBytes> AllocationOf(const std::byte* inside) {
  void* function = nullptr;  // asked for at run time: nothing here links against the driver
  cudaDriverEntryPointQueryResult found{};
  REFIT_RETURN_IF_ERROR(
      FromCuda(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &found),
               "asking the driver for cuMemGetAddressRange"));
  if (found != cudaDriverEntryPointSuccess) {
    return Unavailable("the driver has no cuMemGetAddressRange", "install a newer driver");
  }
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const CUresult result =
      reinterpret_cast<PFN_cuMemGetAddressRange_v3020>(function)(&base, &size, reinterpret_cast<CUdeviceptr>(inside));
  if (result != CUDA_SUCCESS) {
    return InvalidArgument(StrCat("the driver knows no allocation there (CUresult ", static_cast<int>(result), ")"),
                           "give memory that CUDA allocated");
  }
  return MutableBytes(reinterpret_cast<std::byte*>(base), size);
}

}  // namespace refit::device
