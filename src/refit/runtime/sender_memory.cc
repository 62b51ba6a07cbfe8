// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/sender_memory.h"

#include <utility>

#include "refit/base/str.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"

namespace refit::runtime {

Result<SharedLoad*> SenderMemory::Map(const std::string& transport, const std::string& address,
                                      const std::string& descriptor, Instant deadline) {
  auto found = mapped_.find(descriptor);
  if (found == mapped_.end()) {
    REFIT_ASSIGN_OR_RETURN(Mapped mapped, transport == transports_.shm().name() ? MapHost(address, descriptor, deadline)
                                                                                : FindGpu(descriptor));
    found = mapped_.emplace(descriptor, std::move(mapped)).first;
  }
  return found->second.load.get();
}

Result<SenderMemory::Mapped> SenderMemory::MapHost(const std::string& address, const std::string& descriptor,
                                                   Instant deadline) {
  Mapped mapped;
  REFIT_ASSIGN_OR_RETURN(const transport::ShmObject object, transport::ParseShmDescriptor({descriptor}));
  REFIT_ASSIGN_OR_RETURN(mapped.link, transports_.shm().Bind(address, deadline));
  REFIT_ASSIGN_OR_RETURN(const device::Memory memory, mapped.link->MapInPlace({descriptor}));
  if (memory.size() < device::kLoadHeaderSize) {
    return InvalidArgument(
        StrCat("load slot ", object.name, " of ", memory.size(), " bytes has no room for its header"));
  }
  REFIT_ASSIGN_OR_RETURN(
      device::SharedName name,
      device::SharedName::Make(object.name, device::IncarnationName(StrCat("l", named_++), incarnation_)));
  mapped.name = std::make_unique<device::SharedName>(std::move(name));
  mapped.load = std::make_unique<HostSharedLoad>(memory.bytes, mapped.name->name());
  return mapped;
}

// Nothing is opened here: each of the engine's ranks opens it, and closes it when it is done.
Result<SenderMemory::Mapped> SenderMemory::FindGpu(const std::string& descriptor) const {
  REFIT_ASSIGN_OR_RETURN(transport::CudaIpcMemory memory, transport::ParseCudaIpcDescriptor({descriptor}));
  if (counters_ == nullptr) {
    return FailedPrecondition("this engine runs on no GPU, so it cannot open a load in GPU memory",
                              "use transport shm, or nixl");
  }
  Mapped mapped;
  mapped.load = std::make_unique<GpuSharedLoad>(std::move(memory.exported), memory.size, device::Memory(), *counters_);
  return mapped;
}

void SenderMemory::Retain(const std::set<std::string>& used) {
  std::erase_if(mapped_, [&used](const auto& entry) { return !used.contains(entry.first); });
}

}  // namespace refit::runtime
