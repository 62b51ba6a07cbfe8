// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What an engine holds after a call: the one table of settled C1. Engines write in place; nothing brings old weights
// back. Every mutating effect reports one, and there is no default.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "refit/base/digest.h"
#include "refit/base/ids.h"

namespace refit::sync {

enum class ResidueKind : std::uint8_t {
  kOld,       // no `update` posted in this attempt, every call answered: may be resumed at V-1
  kMixed,     // first `update` posted, `end` not acknowledged: never resumed; the full set again, or kill
  kComplete,  // `end` and verify acknowledged, paused: resumed by ACTIVATE only
  kUnknown,   // a mutating call without a complete answer: kill
};
std::string_view ToString(ResidueKind kind);  // "old", "mixed", "complete", "unknown"

struct Residue {
  ResidueKind kind;
  WeightVersion version;  // kOld: what it still serves; kComplete, kMixed: what was being installed
  AttemptId attempt;      // kComplete, kMixed
  Digest digest;          // kComplete; kOld: of what it serves, zero where nobody installed it (launch weights)

  static Residue Old(WeightVersion version, Digest digest = {}) { return {ResidueKind::kOld, version, {}, digest}; }
  static Residue Mixed(WeightVersion version, AttemptId attempt) { return {ResidueKind::kMixed, version, attempt, {}}; }
  static Residue Complete(WeightVersion version, AttemptId attempt, Digest digest) {
    return {ResidueKind::kComplete, version, attempt, digest};
  }
  static Residue Unknown() { return {ResidueKind::kUnknown, WeightVersion(0), {}, {}}; }

  bool IsOld(WeightVersion of) const { return kind == ResidueKind::kOld && version == of; }

  friend bool operator==(const Residue&, const Residue&) = default;
};

std::string ToString(const Residue& residue);  // "complete(version 3)", "mixed(version 3)", "old(version 2)"

}  // namespace refit::sync
