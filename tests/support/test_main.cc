// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// main() of every test program. REFIT_MUTANT=<id> chooses the planted bug of a build with REFIT_MUTANTS=ON;
// tools/mutants.py sets it and expects a red test.

#include <gtest/gtest.h>

#include <cstdlib>

#include "refit/base/mutant.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* id = std::getenv("REFIT_MUTANT")) {
    refit::mutant::Choose(id);
  }
  return RUN_ALL_TESTS();
}
