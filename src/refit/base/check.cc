// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace refit {

void CheckFailed(const char* file, int line, const char* condition, const char* why) {
  std::fprintf(stderr, "%s:%d: check failed: %s (%s)\n", file, line, condition, why);
  std::abort();
}

}  // namespace refit
