// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Host memory of one process for bytes that cross a link: whole pages, large ones where the kernel has them (4 KiB
// pages cost a cross-process read a third of its rate).

#pragma once

#include <memory>

#include "refit/base/bytes.h"
#include "refit/base/status.h"

namespace refit::device {

class HostBlock {
 public:
  // RESOURCE_EXHAUSTED when there is no memory for it.
  static Result<std::unique_ptr<HostBlock>> Allocate(ByteCount size);
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  MutableBytes bytes() const { return bytes_; }

 private:
  explicit HostBlock(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes_;
};

}  // namespace refit::device
