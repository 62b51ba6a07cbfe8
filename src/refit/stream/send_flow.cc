// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/send_flow.h"

#include "refit/base/mutant.h"

namespace refit::stream {

SendStep SendFlow::Next() {
  if (next_ < places_.size()) {
    if (filled_.size() >= depth_) {
      return Announce();
    }
    if (ledger_.MayFill(places_[next_])) {
      return Fill();
    }
    if (!ledger_.running()) {
      return REFIT_MUTANT("RX-XFER-13/leave-the-loop", Skip(), SendStep{});
    }
    // Nobody gives back what was not announced yet.
    return filled_.empty() ? SendStep{SendStep::Kind::kAwaitRelease} : Announce();
  }
  if (!filled_.empty()) {
    return Announce();
  }
  const bool waits = ledger_.running() && ledger_.any_out();
  return {waits ? SendStep::Kind::kAwaitRelease : SendStep::Kind::kEnd};
}

SendStep SendFlow::Skip() { return {SendStep::Kind::kSkip, next_++, 0}; }

SendStep SendFlow::Fill() {
  const std::size_t bucket = next_++;
  ledger_.Fill(places_[bucket], LoadSeq(bucket));
  filled_.push_back(bucket);
  return {SendStep::Kind::kFill, bucket, places_[bucket]};
}

SendStep SendFlow::Announce() {
  const std::size_t bucket = filled_.front();
  filled_.pop_front();
  ledger_.Announce(places_[bucket]);
  return {SendStep::Kind::kAnnounce, bucket, places_[bucket]};
}

void SendFlow::Stop() {
  ledger_.Stop();
  filled_.clear();
}

}  // namespace refit::stream
