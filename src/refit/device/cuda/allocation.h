// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#pragma once

#include "refit/base/bytes.h"
#include "refit/base/status.h"

namespace refit::device {

// The whole allocation, of this process or mapped, that `inside` lies in. Only the driver knows.
Result<MutableBytes> AllocationOf(const std::byte* inside);

}  // namespace refit::device
