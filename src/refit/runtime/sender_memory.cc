// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/sender_memory.h"

#include <utility>

#include "refit/base/str.h"
#include "refit/transport/shm/shm_transport.h"

namespace refit::runtime {

Result<SenderMemory::LoadSlotObject> SenderMemory::Map(const std::string& transport_address,
                                                       const std::string& descriptor, Instant deadline) {
  auto found = mapped_.find(descriptor);
  if (found == mapped_.end()) {
    REFIT_ASSIGN_OR_RETURN(const transport::ShmObject object, transport::ParseShmDescriptor({descriptor}));
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<transport::Link> link, transport_.Bind(transport_address, deadline));
    REFIT_ASSIGN_OR_RETURN(const device::Memory mapped, link->MapInPlace({descriptor}));
    const MutableBytes bytes = mapped.bytes;
    if (bytes.size() < device::kLoadHeaderSize) {
      return InvalidArgument(
          StrCat("load slot ", object.name, " of ", bytes.size(), " bytes has no room for its header"));
    }
    REFIT_ASSIGN_OR_RETURN(
        device::SharedName name,
        device::SharedName::Make(object.name, device::IncarnationName(StrCat("l", named_++), incarnation_)));
    found = mapped_.emplace(descriptor, Mapped{std::move(link), bytes, std::move(name)}).first;
  }
  return LoadSlotObject{found->second.object, found->second.name.name()};
}

void SenderMemory::Retain(const std::set<std::string>& used) {
  std::erase_if(mapped_, [&used](const auto& entry) { return !used.contains(entry.first); });
}

}  // namespace refit::runtime
