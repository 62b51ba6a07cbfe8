// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What people want of a slot (RX-MEM-01, -04, -05).

#pragma once

#include <cstdint>

namespace refit::control {

enum class SlotAction : std::uint8_t {
  kAdd,      // put it in service: a new number, or one that was drained
  kDrain,    // out of the router, its requests end or are aborted after their grace, no refit takes it in
  kRemove,   // drained, shut down, retired
  kRestart,  // drained, ended, launched again
};

}  // namespace refit::control
