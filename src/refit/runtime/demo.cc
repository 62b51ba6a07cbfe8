// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/demo.h"

namespace refit::runtime {

double CeilingShare(const DemoRefit& refit) {
  return refit.report.seconds > 0 ? refit.ceiling_seconds / refit.report.seconds : 0;
}

}  // namespace refit::runtime
