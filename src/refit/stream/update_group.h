// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// From an aligned group to `update` calls (contract §9): one call with mixed dtypes; in profile `strict` one call per
// dtype, in order of first appearance on rank 0.

#pragma once

#include <cstdint>
#include <vector>

#include "refit/base/status.h"
#include "refit/stream/name_aligner.h"

namespace refit::stream {

enum class DTypeSplit : std::uint8_t { kMixed, kByDType };

// Every call of the group, in order. Fails where ranks disagree on the dtypes or, per dtype, on the names (RC-PAY-02).
Result<std::vector<AlignedGroup>> SplitIntoCalls(const AlignedGroup& group, DTypeSplit split);

}  // namespace refit::stream
