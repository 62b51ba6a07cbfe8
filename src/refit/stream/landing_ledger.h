// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A receiver's book of the places where a link's pieces become loads: the load of number n goes to place n mod 2, so
// that one is filled while the other is installed. A place is used again only when no rank may still read it, and when
// no earlier read may still land in it (RX-XFER-03).

#pragma once

#include <cstddef>
#include <cstdint>

#include "refit/stream/slot_ledger.h"

namespace refit::stream {

constexpr std::size_t kLandingPlaces = 2;

// Of one transfer's loads, which are given back in order.
class LandingTurns {
 public:
  bool MayOpen(std::uint64_t load) const;
  void GiveBack(std::uint64_t load);  // the engine's ranks have let go of it

 private:
  std::uint64_t given_back_ = 0;
};

// What is known about a link's reads when a transfer has ended.
enum class LateReads : std::uint8_t { kNone, kPossible };  // kNone: all have landed, or were fenced

// Of one stream in one life of its engine.
class LandingLedger {
 public:
  // Of the memory in which the place's next load would go: what a rank may still read is left to it (RX-XFER-12).
  static MemoryFate Reuse(Readers readers);
  // After a transfer: of all places alike. Memory that is replaced is kept for the rest of the life (RX-XFER-07).
  MemoryFate EndTransfer(LateReads reads);
  // Replaced twice in one life: the life must end, since memory does (RX-XFER-07).
  bool exhausted() const;

 private:
  std::size_t burials_ = 0;
};

}  // namespace refit::stream
