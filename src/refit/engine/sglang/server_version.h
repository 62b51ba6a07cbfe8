// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a server's version string says about its session routes (docs/spec/sglang-wire.md §0.1, §0.2).

#pragma once

#include <string_view>

#include "refit/base/status.h"
#include "refit/sync/engine_call.h"

namespace refit::engine::sglang {

// "0.5.17" -> A, "0.5.23" -> C, "0.5.17.dev30+g3003d70f6" (built from a branch) -> B, the family that forgives least.
// FAILED_PRECONDITION below 0.5.9, whose buckets count elements instead of bytes.
Result<sync::SessionFamily> FamilyOfVersion(std::string_view version);

}  // namespace refit::engine::sglang
