// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/landing_ledger.h"

#include <algorithm>

#include "refit/base/mutant.h"

namespace refit::stream {

bool LandingTurns::MayOpen(std::uint64_t load) const {
  return REFIT_MUTANT("RC-RX-02/open-an-installing-place", load < given_back_ + kLandingPlaces, true);
}

void LandingTurns::GiveBack(std::uint64_t load) { given_back_ = std::max(given_back_, load + 1); }

MemoryFate LandingLedger::Reuse(Readers readers) {
  const bool gone = REFIT_MUTANT("RX-XFER-12/land-under-a-reader", readers == Readers::kGone, true);
  return gone ? MemoryFate::kKeep : MemoryFate::kReplace;
}

MemoryFate LandingLedger::EndTransfer(LateReads reads) {
  if (REFIT_MUTANT("RX-XFER-03/reuse-unfenced", reads == LateReads::kNone, true)) {
    return MemoryFate::kKeep;
  }
  ++burials_;
  return MemoryFate::kReplace;
}

bool LandingLedger::exhausted() const { return REFIT_MUTANT("RX-XFER-07/bury-without-end", burials_ > 1, false); }

}  // namespace refit::stream
