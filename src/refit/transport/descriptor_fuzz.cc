// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Descriptors come from a peer. Whatever is accepted names an object of ours, or a stretch inside an allocation, and
// reads as written.

#include <cstddef>
#include <cstdint>
#include <string>

#include "refit/base/check.h"
#include "refit/base/str.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"
#include "refit/transport/shm/shm_transport.h"

namespace {

void TryShm(const std::string& text) {
  const auto object = refit::transport::ParseShmDescriptor({text});
  if (object.ok()) {
    const std::string& name = object->name;
    REFIT_CHECK(name.starts_with("/refit-") && name.find('/', 1) == std::string::npos, "a path got through");
    REFIT_CHECK(name.find('\0') == std::string::npos && name.size() < 255, "a name that no file can have got through");
    REFIT_CHECK(text.starts_with(refit::StrCat("shm:", name, ":")), "the name is not what was written");
  }
}

void TryCudaIpc(const std::string& text) {
  const auto memory = refit::transport::ParseCudaIpcDescriptor({text});
  if (memory.ok()) {
    const refit::device::GpuExport& exported = memory->exported;
    REFIT_CHECK(exported.handle.size() == 64 && exported.gpu_uuid.size() == 36, "a handle or a UUID of another size");
    REFIT_CHECK(exported.offset <= exported.allocation_size, "an offset past the allocation");
    REFIT_CHECK(memory->size <= exported.allocation_size - exported.offset, "a stretch past the allocation");
    REFIT_CHECK(refit::transport::MakeCudaIpcDescriptor(*memory).text == text, "two texts for one stretch");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  TryShm(text);
  TryCudaIpc(text);
  return 0;
}
