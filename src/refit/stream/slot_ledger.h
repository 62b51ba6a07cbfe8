// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A sender's book of its slots for one receiver, living across attempts: when a slot may be filled, which release frees
// it, and what becomes of it after an attempt that ended early. Loads are in slots that ranks map, pieces in slots that
// a link reads.
//
// Never: lets a slot be filled again before its release (RX-XFER-04), or before the receiver has fenced the attempt
// under which it was announced (RX-XFER-05); frees one by a release of another attempt (RX-XFER-02); keeps one that a
// rank may still read (RX-XFER-12).

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/stream/bucket_packer.h"

namespace refit::stream {

// Whether a rank may still read a piece of memory, as its count says (RC-PAY-09).
enum class Readers : std::uint8_t { kGone, kThere, kUnknown };  // kUnknown: its count lies with the receiver

// kReplace: leave the memory to who may still read it, and take another; a count is never reset (settled C7).
enum class MemoryFate : std::uint8_t { kKeep, kReplace };

struct SlotReview {
  bool new_life = false;          // of the receiver: nobody reads any more what was left to earlier ones
  std::vector<MemoryFate> fates;  // of each slot there was
};

class SlotLedger {
 public:
  // The receiver's life `receiver` opened a stream of `attempt`. That is its word that it has fenced all its earlier
  // attempts (RX-XFER-12), and that any earlier life is dead. From now on there are `slots` slots, all of them free.
  // readers: of each slot there was. ABORTED where the attempt is not newer than the last one.
  Result<SlotReview> Open(AttemptId attempt, const Incarnation& receiver, PackUnit unit,
                          std::span<const Readers> readers, std::size_t slots);

  // The same word, given outside any attempt: the receiver binds, and nothing is sent yet.
  SlotReview Bind(const Incarnation& receiver, PackUnit unit, std::span<const Readers> readers, std::size_t slots);

  bool running() const { return running_; }
  bool MayFill(std::size_t slot) const;
  void Fill(std::size_t slot, LoadSeq seq);
  void Announce(std::size_t slot);
  // Whether it frees a slot. One of another attempt, or of a load that is not announced, says nothing about this
  // attempt's slots: it is counted.
  bool Release(AttemptId attempt, LoadSeq seq);
  // The attempt ended early: what is not free stays as it is until the next Open.
  void Stop() { running_ = false; }

  bool any_out() const;  // filled, and not released
  std::uint64_t refused() const { return refused_; }

 private:
  struct Slot {
    std::optional<LoadSeq> load;  // nothing: free
    bool announced = false;
  };

  std::optional<AttemptId> attempt_;  // of the last Open
  Incarnation receiver_;
  PackUnit unit_ = PackUnit::kLoad;
  bool running_ = false;
  std::vector<Slot> slots_;
  std::uint64_t refused_ = 0;
};

}  // namespace refit::stream
