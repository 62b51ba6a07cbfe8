// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/device/cuda/allocation.h"
#include "refit/device/cuda/cuda_status.h"

namespace refit::device {
namespace {

using Key = std::pair<GpuOrdinal, std::string>;  // who reads, and the handle

struct Opened {
  MutableBytes allocation;
  std::size_t users = 0;
};

// What this process has open: CUDA lets a process open a handle once per GPU.
class Registry {
 public:
  Result<MutableBytes> Take(const Key& key, const GpuExport& exported) {
    const std::lock_guard lock(mutex_);
    Opened& opened = opened_[key];
    if (opened.users == 0) {
      auto allocation = Open(key, exported);
      if (!allocation.has_value()) {
        opened_.erase(key);
        return allocation.status();
      }
      opened.allocation = *allocation;
    }
    ++opened.users;
    return opened.allocation;
  }

  void Drop(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = opened_.find(key);
    if (--found->second.users > 0) {
      return;
    }
    if (UseGpu(key.first).ok()) {
      cudaIpcCloseMemHandle(found->second.allocation.data());
    }
    opened_.erase(found);
  }

 private:
  static Result<MutableBytes> Open(const Key& key, const GpuExport& exported) {
    const GpuOrdinal gpu = key.first;
    REFIT_RETURN_IF_ERROR(UseGpu(gpu));
    cudaIpcMemHandle_t handle{};
    std::memcpy(handle.reserved, key.second.data(), sizeof(handle.reserved));
    void* base = nullptr;
    const cudaError_t error = cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error == cudaErrorInvalidValue || error == cudaErrorInvalidResourceHandle ||
        error == cudaErrorDeviceUninitialized) {
      cudaGetLastError();
      return InvalidArgument(
          StrCat("the handle names no memory of another process (", cudaGetErrorName(error), ")"),
          "the peer has ended or freed it, or is this process; both need one /dev/shm and IPC namespace");
    }
    if (error == cudaErrorPeerAccessUnsupported || error == cudaErrorTooManyPeers) {
      cudaGetLastError();
      return FailedPrecondition(
          StrCat("GPU ", gpu, " cannot reach GPU ", exported.gpu_uuid, ": ", cudaGetErrorName(error)),
          "keep both on one host with NVLink or PCIe peer access, or use transport nixl");
    }
    REFIT_RETURN_IF_ERROR(FromCuda(error, StrCat("opening memory of GPU ", exported.gpu_uuid, " on GPU ", gpu)));
    // How long it really is; a peer's word is not believed, since reading past the end ends the process.
    const auto allocation = AllocationOf(static_cast<std::byte*>(base));
    if (!allocation.has_value()) {
      cudaIpcCloseMemHandle(base);
      return allocation.status();
    }
    const auto before = static_cast<std::size_t>(static_cast<std::byte*>(base) - allocation->data());
    return allocation->subspan(before);
  }

  std::mutex mutex_;
  std::map<Key, Opened> opened_;
};

Registry& Mappings() {
  static auto* const registry = new Registry();  // never destroyed: mappings may outlive main's statics
  return *registry;
}

class CudaMapping final : public GpuMapping {
 public:
  CudaMapping(Key key, MutableBytes allocation) : key_(std::move(key)), allocation_(allocation) {}
  ~CudaMapping() override { Mappings().Drop(key_); }
  CudaMapping(const CudaMapping&) = delete;
  CudaMapping& operator=(const CudaMapping&) = delete;
  Memory memory() const override { return {allocation_, key_.first}; }

 private:
  const Key key_;
  const MutableBytes allocation_;
};

// Only what this process sees can be asked about; whatever else the driver says at the opening.
Status CheckPeerAccess(GpuOrdinal gpu, const std::string& exporter) {
  REFIT_ASSIGN_OR_RETURN(const std::vector<Gpu> gpus, ListGpus());
  for (const Gpu& other : gpus) {
    if (other.uuid != exporter || other.ordinal == gpu) {
      continue;
    }
    int can = 0;
    REFIT_RETURN_IF_ERROR(FromCuda(cudaDeviceCanAccessPeer(&can, gpu, other.ordinal),
                                   StrCat("asking whether GPU ", gpu, " reaches GPU ", other.ordinal)));
    if (can == 0) {
      return FailedPrecondition(StrCat("GPU ", gpu, " has no peer access to GPU ", other.ordinal, " (", exporter, ")"),
                                "pair GPUs that nvidia-smi topo -p2p r shows as OK, or use transport nixl or shm");
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<GpuMapping>> GpuMapping::Open(GpuOrdinal gpu, const GpuExport& exported) {
  if (exported.handle.size() != sizeof(cudaIpcMemHandle_t)) {
    return InvalidArgument(StrCat("a CUDA IPC handle of ", exported.handle.size(), " bytes, not 64"));
  }
  REFIT_RETURN_IF_ERROR(FindGpu(gpu).status());
  REFIT_RETURN_IF_ERROR(CheckPeerAccess(gpu, exported.gpu_uuid));
  Key key(gpu, exported.handle);
  REFIT_ASSIGN_OR_RETURN(const MutableBytes allocation, Mappings().Take(key, exported));
  if (allocation.size() < exported.allocation_size) {
    Mappings().Drop(key);
    return InvalidArgument(
        StrCat("the peer's allocation has ", allocation.size(), " bytes, it says ", exported.allocation_size),
        "the peer runs another version of refit");
  }
  return std::unique_ptr<GpuMapping>(
      std::make_unique<CudaMapping>(std::move(key), allocation.first(exported.allocation_size)));
}

}  // namespace refit::device
