// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What to copy where, decided by the core and carried out by device/: planning is pure, copying is not.

#pragma once

#include <cstddef>
#include <vector>

#include "refit/base/bytes.h"

namespace refit::stream {

struct Copy {
  std::size_t source = 0;       // index of a source tensor
  ByteCount source_offset = 0;  // bytes
  ByteCount target_offset = 0;  // bytes from the target buffer's start
  ByteCount size = 0;
  std::size_t entry = 0;  // index of the bucket's entry that these bytes belong to; its digest covers them in order

  friend bool operator==(const Copy&, const Copy&) = default;
};

using CopyPlan = std::vector<Copy>;  // ascending by target_offset

}  // namespace refit::stream
