// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A receiver's judge of what arrives in one stream of one transfer: takes the announcements of this attempt to this
// life of its engine, in order, each once. What belongs to another attempt or is meant for another life is dropped and
// counted (RX-XFER-01, RX-ID-02, RX-ID-04); what is ours and wrong breaks the stream.

#pragma once

#include <cstddef>
#include <cstdint>

#include "refit/base/ids.h"
#include "refit/base/status.h"

namespace refit::stream {

enum class Arrival : std::uint8_t { kTake, kDrop };

class AnnouncementGate {
 public:
  AnnouncementGate(AttemptId attempt, const Incarnation& incarnation) : attempt_(attempt), incarnation_(incarnation) {}

  // The sender's first word, that its stream has so many slots, and its last one where it fails.
  Arrival Opened(AttemptId attempt, std::size_t slots);
  Arrival Failed(AttemptId attempt) { return Judge(attempt == attempt_); }
  // A load or piece in a slot. DATA_LOSS: ours, but out of order, after the last one, or in a slot that there is not.
  Result<Arrival> Announced(AttemptId attempt, const Incarnation& incarnation, std::size_t slot, LoadSeq seq,
                            bool is_last);

  bool saw_last() const { return saw_last_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  Arrival Judge(bool ours);

  AttemptId attempt_;
  Incarnation incarnation_;
  std::size_t slots_ = 0;  // until it is open
  LoadSeq next_;
  bool saw_last_ = false;
  std::uint64_t dropped_ = 0;
};

}  // namespace refit::stream
