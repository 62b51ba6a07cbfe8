// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// REFIT_CHECK: for bugs of ours, never for what a peer, a file, a network or a user can cause (that is a Status).
// Always on. A failed check prints one line and ends the process.

#pragma once

namespace refit {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const char* why);

}  // namespace refit

#define REFIT_CHECK(condition, why)                                \
  do {                                                             \
    if (!(condition)) [[unlikely]] {                               \
      ::refit::CheckFailed(__FILE__, __LINE__, #condition, (why)); \
    }                                                              \
  } while (false)
