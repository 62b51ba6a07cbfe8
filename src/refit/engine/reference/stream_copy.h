// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A copy whose target is not read again soon: past the caches, so that the target's lines are not fetched first and the
// load slots stay in the last-level cache. Installing 1.2 GB moves a third fewer bytes over the memory bus.

#pragma once

#include <cstddef>

namespace refit::engine::reference {

void StreamCopy(std::byte* target, const std::byte* source, std::size_t size);

}  // namespace refit::engine::reference
