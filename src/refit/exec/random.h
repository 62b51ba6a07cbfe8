// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Random identities, from the kernel.

#pragma once

#include "refit/base/ids.h"

namespace refit::exec {

Id128 RandomId();  // never zero

}  // namespace refit::exec
