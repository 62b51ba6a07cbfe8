// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a state directory tells of its run, whether or not a controller lives there.

#pragma once

#include <string>

#include "refit/base/status.h"
#include "refit/control/history.h"
#include "refit/store/store.h"

namespace refit::runtime {

Result<control::History> ReadHistory(store::Store& store);
// Without disturbing the controller that may serve there.
Result<control::History> ReadHistory(const std::string& state_directory);

}  // namespace refit::runtime
