// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/announcement_gate.h"

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::stream {

Arrival AnnouncementGate::Judge(bool ours) {
  dropped_ += ours ? 0U : 1U;
  return ours ? Arrival::kTake : Arrival::kDrop;
}

Arrival AnnouncementGate::Opened(AttemptId attempt, std::size_t slots) {
  const Arrival arrival = Judge(attempt == attempt_);
  slots_ = arrival == Arrival::kTake ? slots : slots_;
  return arrival;
}

Result<Arrival> AnnouncementGate::Announced(AttemptId attempt, const Incarnation& incarnation, std::size_t slot,
                                            LoadSeq seq, bool is_last) {
  const bool this_attempt = REFIT_MUTANT("RX-XFER-01/take-any-attempts-load", attempt == attempt_, true);
  const bool this_life = REFIT_MUTANT("RX-ID-04/take-any-lifes-load", incarnation == incarnation_, true);
  if (Judge(this_attempt && this_life) == Arrival::kDrop) {
    return Arrival::kDrop;
  }
  if (saw_last_) {
    return DataLoss(StrCat("load ", seq, " was announced after the last one"));
  }
  if (REFIT_MUTANT("RC-BKT-04/take-any-order", seq != next_, false) || slot >= slots_) {
    return DataLoss(StrCat("load ", seq, " was announced in slot ", slot, " of ", slots_, ", expected load ", next_));
  }
  next_ = next_.Next();
  saw_last_ = is_last;
  return Arrival::kTake;
}

}  // namespace refit::stream
