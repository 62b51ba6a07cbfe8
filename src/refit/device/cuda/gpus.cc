// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/device/cuda/cuda_status.h"

namespace refit::device {
namespace {

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = ToHex(std::as_bytes(std::span(uuid.bytes)));
  for (const std::size_t dash : {20U, 16U, 12U, 8U}) {
    text.insert(dash, 1, '-');
  }
  return text;
}

}  // namespace

bool BuiltWithCuda() { return true; }

Result<std::vector<Gpu>> ListGpus() {
  int count = 0;
  REFIT_RETURN_IF_ERROR(FromCuda(cudaGetDeviceCount(&count), "looking for GPUs"));
  std::vector<Gpu> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    REFIT_RETURN_IF_ERROR(FromCuda(cudaGetDeviceProperties(&properties, ordinal), StrCat("asking GPU ", ordinal)));
    gpus.push_back({ordinal, UuidText(properties.uuid), properties.name, properties.totalGlobalMem});
  }
  if (gpus.empty()) {
    return Unavailable("there is no GPU", "set CUDA_VISIBLE_DEVICES to one, or keep the weights on the host");
  }
  return gpus;
}

Result<Gpu> FindGpu(GpuOrdinal ordinal) {
  REFIT_ASSIGN_OR_RETURN(const std::vector<Gpu> gpus, ListGpus());
  std::string known;
  for (const Gpu& gpu : gpus) {
    if (gpu.ordinal == ordinal) {
      return gpu;
    }
    known += StrCat(known.empty() ? "" : ", ", gpu.ordinal, " (", gpu.name, ")");
  }
  return NotFound(StrCat("there is no GPU ", ordinal), StrCat("this process sees ", known));
}

}  // namespace refit::device
