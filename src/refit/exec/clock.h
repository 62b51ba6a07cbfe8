// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The only reader of a clock, and the two kinds of waiting that edges need.

#pragma once

#include <functional>

#include "refit/base/time.h"

namespace refit::exec {

Instant Now();  // CLOCK_MONOTONIC

// True once ready() is; false at the deadline. Spins briefly, then naps (20 us to 1 ms): for conditions that another
// process changes in shared memory and cannot signal. Thread: any.
bool WaitUntil(const std::function<bool()>& ready, Instant deadline);

}  // namespace refit::exec
