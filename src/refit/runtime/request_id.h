// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A name for one request of a person: asked for again with the same one, a sync that ran is not run twice (RX-ONCE-02).

#pragma once

#include <string>

#include "refit/base/ids.h"
#include "refit/exec/random.h"

namespace refit::runtime {

inline std::string NewRequestId() { return ToHex(exec::RandomId()); }

}  // namespace refit::runtime
