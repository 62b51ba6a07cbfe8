// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether a model can run with a TP size at all (RC-CFG-18, settled D4), before anything is started.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/status.h"

namespace refit::runtime {

// The model that "--model DIR" of the arguments names ("--model-path DIR" for SGLang); OK where they name none on this
// machine: its engine will tell.
Status CheckModelFits(const std::vector<std::string>& engine_args, std::uint32_t tp_size);

}  // namespace refit::runtime
