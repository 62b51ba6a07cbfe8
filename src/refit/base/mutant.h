// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// REFIT_MUTANT("RC-BKT-02/no-rounding", right, wrong): a planted bug that a test must turn red on (RC-TEST-01).
// In shipped libraries it is `right` and nothing else. A build with REFIT_MUTANTS=ON carries both and chooses at run
// time; tools/mutants.py runs each id against the tests its table names, refit-sim --planted several at once.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace refit::mutant {

inline std::vector<std::string>& chosen() {
  static std::vector<std::string> ids;
  return ids;
}
inline void ChooseAll(std::vector<std::string> ids) { chosen() = std::move(ids); }
inline void Choose(std::string_view id) { ChooseAll({std::string(id)}); }
inline bool Active(std::string_view id) {
  for (const std::string& one : chosen()) {
    if (one == id) {
      return true;
    }
  }
  return false;
}

}  // namespace refit::mutant

#ifdef REFIT_MUTANTS
#define REFIT_MUTANT(id, right, wrong) (::refit::mutant::Active(id) ? (wrong) : (right))
#else
#define REFIT_MUTANT(id, right, wrong) (right)
#endif
