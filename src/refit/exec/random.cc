// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/exec/random.h"

#include <sys/random.h>

#include "refit/base/check.h"

namespace refit::exec {

Id128 RandomId() {
  Id128 id;
  do {
    REFIT_CHECK(getrandom(&id, sizeof(id), 0) == static_cast<ssize_t>(sizeof(id)), "the kernel gave no random bytes");
  } while (id.is_zero());
  return id;
}

}  // namespace refit::exec
