// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/host_block.h"

#include <sys/mman.h>

#include "refit/base/str.h"

namespace refit::device {

Result<std::unique_ptr<HostBlock>> HostBlock::Allocate(ByteCount size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted(StrCat("no host memory for ", size, " bytes of load slots"),
                             "lower transport.nixl.piece_bytes, or free some memory");
  }
  static_cast<void>(madvise(memory, size, MADV_HUGEPAGE));  // a wish: small pages do too
  return std::unique_ptr<HostBlock>(new HostBlock({static_cast<std::byte*>(memory), size}));
}

HostBlock::~HostBlock() { munmap(bytes_.data(), bytes_.size()); }

}  // namespace refit::device
