// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/cuda_ipc/cuda_ipc_transport.h"

#include <algorithm>
#include <optional>

#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"
#include "refit/transport/cuda_ipc/cuda_ipc_link.h"

namespace refit::transport {
namespace {

constexpr std::string_view kAddressPrefix = "cuda_ipc:";
constexpr std::size_t kMaxTextSize = 512;

}  // namespace

Result<std::unique_ptr<CudaIpcTransport>> CudaIpcTransport::Create() {
  if (const auto gpus = device::ListGpus(); !gpus.has_value()) {
    return gpus.status().WithContext("transport cuda_ipc");
  }
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<ExportTable> exports, ExportTable::Create());
  return std::unique_ptr<CudaIpcTransport>(new CudaIpcTransport(std::move(exports)));
}

Result<Descriptor> CudaIpcTransport::Export(device::Memory memory) {
  if (!memory.gpu.has_value()) {
    return InvalidArgument("transport cuda_ipc exports GPU memory only", "use transport shm for the host's");
  }
  REFIT_ASSIGN_OR_RETURN(device::GpuExport exported, device::ExportGpuMemory(memory));
  Descriptor descriptor = MakeCudaIpcDescriptor({std::move(exported), memory.size()});
  const std::lock_guard lock(mutex_);
  REFIT_RETURN_IF_ERROR(exports_->Add(descriptor.text));
  return descriptor;
}

void CudaIpcTransport::Unexport(const Descriptor& descriptor) {
  const std::lock_guard lock(mutex_);
  exports_->Remove(descriptor.text);
}

Result<std::unique_ptr<Link>> CudaIpcTransport::Bind(std::string_view peer_address, Instant /*deadline*/) {
  const std::string_view table = peer_address.substr(std::min(kAddressPrefix.size(), peer_address.size()));
  const std::optional<device::ProcessIdentity> owner =
      peer_address.size() <= kMaxTextSize && peer_address.starts_with(kAddressPrefix) ? device::OwnerOf(table)
                                                                                      : std::nullopt;
  if (!owner.has_value()) {
    return InvalidArgument("not an address of the cuda_ipc transport",
                           "it reads cuda_ipc:/refit-<pid>-<start time>-<what>, as the peer's Address() says");
  }
  if (*owner == device::ThisProcess()) {
    return InvalidArgument("the peer is this process: CUDA does not open a process's own handles",
                           "run the policy worker and the agent as two processes");
  }
  // No waiting: an address names one life of a process, and one that has ended does not come back.
  if (device::CountsPidsAsWeDo(table) && !device::IsRunning(*owner)) {
    return Unavailable(StrCat("no process ", owner->pid, " of that start time runs here"), "the peer has ended");
  }
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<ExportTable> peer, ExportTable::Open(table));
  return std::unique_ptr<Link>(std::make_unique<CudaIpcLink>(std::move(peer)));
}

std::string CudaIpcTransport::Address() const { return StrCat(kAddressPrefix, exports_->name()); }

}  // namespace refit::transport
