// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a sender does next in one attempt: fills slots ahead as far as they are free, announces in order, waits for
// releases. After a stop it goes through the rest of its source without filling or announcing anything, since the
// source's iterator may run collectives (RX-XFER-13).

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "refit/stream/slot_ledger.h"

namespace refit::stream {

struct SendStep {
  enum class Kind : std::uint8_t {
    kFill,          // the slot with the bucket
    kSkip,          // the bucket: take it from the source, and drop it
    kAnnounce,      // the bucket, which is in the slot
    kAwaitRelease,  // and give it to the ledger
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::size_t bucket = 0;  // its number in the stream
  std::size_t slot = 0;
};

class SendFlow {
 public:
  // places: the slot of each bucket, in order. depth: how many filled ones may wait to be announced; at least 1.
  // ledger: open, and of this attempt.
  SendFlow(SlotLedger& ledger, std::vector<std::size_t> places, std::size_t depth)
      : ledger_(ledger), places_(std::move(places)), depth_(depth) {}

  SendStep Next();  // enters it in the ledger as done
  void Stop();

 private:
  SendStep Skip();
  SendStep Fill();
  SendStep Announce();

  SlotLedger& ledger_;
  const std::vector<std::size_t> places_;
  const std::size_t depth_;
  std::size_t next_ = 0;            // bucket to fill
  std::deque<std::size_t> filled_;  // not announced yet
};

}  // namespace refit::stream
