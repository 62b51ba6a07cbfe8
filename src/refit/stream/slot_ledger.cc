// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/slot_ledger.h"

#include <algorithm>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::stream {

Result<SlotReview> SlotLedger::Open(AttemptId attempt, const Incarnation& receiver, PackUnit unit,
                                    std::span<const Readers> readers, std::size_t slots) {
  if (attempt_.has_value() && attempt <= *attempt_) {
    return Aborted(
        StrCat("a stream of attempt ", ToString(attempt), " was opened after one of attempt ", ToString(*attempt_)));
  }
  SlotReview review = Bind(receiver, unit, readers, slots);
  attempt_ = attempt;
  running_ = true;
  return review;
}

SlotReview SlotLedger::Bind(const Incarnation& receiver, PackUnit unit, std::span<const Readers> readers,
                            std::size_t slots) {
  SlotReview review{.new_life = receiver != receiver_, .fates = {}};
  for (std::size_t i = 0; i < readers.size(); ++i) {
    // A link's reads ended with the fence, and a dead life's with its processes; a count that is not ours says nothing.
    const bool unsettled = i < slots_.size() && slots_[i].load.has_value() && unit_ == PackUnit::kLoad &&
                           !review.new_life && readers[i] == Readers::kUnknown;
    const bool read =
        REFIT_MUTANT("RX-XFER-12/refill-under-a-reader", readers[i] == Readers::kThere || unsettled, false);
    review.fates.push_back(read ? MemoryFate::kReplace : MemoryFate::kKeep);
  }
  receiver_ = receiver;
  unit_ = unit;
  running_ = false;
  slots_.assign(slots, {});
  return review;
}

bool SlotLedger::MayFill(std::size_t slot) const {
  if (!running_) {
    return REFIT_MUTANT("RX-XFER-05/refill-before-fenced", false, true);
  }
  return !slots_[slot].load.has_value() || REFIT_MUTANT("RX-XFER-04/refill-before-release", false, true);
}

void SlotLedger::Fill(std::size_t slot, LoadSeq seq) { slots_[slot] = {.load = seq, .announced = false}; }

void SlotLedger::Announce(std::size_t slot) { slots_[slot].announced = true; }

bool SlotLedger::Release(AttemptId attempt, LoadSeq seq) {
  const bool ours = running_ && REFIT_MUTANT("RX-XFER-02/take-any-attempts-release", attempt == attempt_, true);
  const auto freed = std::find_if(slots_.begin(), slots_.end(), [seq](const Slot& slot) {
    return slot.announced && REFIT_MUTANT("RX-XFER-02/take-any-loads-release", slot.load == seq, true);
  });
  if (!ours || freed == slots_.end()) {
    ++refused_;
    return false;
  }
  *freed = {};
  return true;
}

bool SlotLedger::any_out() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.load.has_value(); });
}

}  // namespace refit::stream
