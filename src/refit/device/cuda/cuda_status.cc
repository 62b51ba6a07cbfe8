// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/cuda/cuda_status.h"

#include <string>
#include <utility>

#include "refit/base/str.h"

namespace refit::device {

Status FromCuda(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) {
    return OkStatus();
  }
  cudaGetLastError();
  std::string message = StrCat(what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:  // also where there is no driver at all
    case cudaErrorStubLibrary:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return Unavailable(std::move(message),
                         StrCat("run where nvidia-smi shows a GPU, with a driver for CUDA ", CUDART_VERSION / 1000, ".",
                                CUDART_VERSION % 1000 / 10, " or newer"));
    case cudaErrorInitializationError:
      return Unavailable(std::move(message), "CUDA does not work in a process that was forked after it was used");
    case cudaErrorMemoryAllocation:
      return ResourceExhausted(std::move(message), "free GPU memory, or give the engine a smaller share of it");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
      return FailedPrecondition(std::move(message),
                                "configure with -DCMAKE_CUDA_ARCHITECTURES=<this GPU's> and build again");
    // What stays with the process: every call that follows fails too.
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
      return Internal(std::move(message), "this process can use no GPU any more: end it and start it again");
    default:
      return Internal(std::move(message), "look at nvidia-smi and the kernel's log; report it if the GPU is well");
  }
}

Status UseGpu(GpuOrdinal gpu) {
  const cudaError_t error = cudaSetDevice(gpu);
  return error == cudaSuccess ? OkStatus() : FromCuda(error, StrCat("using GPU ", gpu));
}

}  // namespace refit::device
