// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The stamp: the identity fields that every message carries (RX-ID-01). A message is acted on only if all that apply
// match what its receiver expects.

#pragma once

#include "refit/base/ids.h"

namespace refit::sync {

struct Stamp {
  RunId run;
  Term term;
  CommandSeq seq;  // with term: strictly increasing per agent (C3)
  AttemptId attempt;
  WeightVersion version;    // the version that the attempt installs
  Incarnation incarnation;  // whom the message is for, as the sender learned it from that incarnation

  friend bool operator==(const Stamp&, const Stamp&) = default;
};

}  // namespace refit::sync
