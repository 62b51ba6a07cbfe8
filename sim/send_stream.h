// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A policy worker's end of the data path to one engine: the slots that it keeps for it from attempt to attempt, and the
// stream of the current attempt, which the shipped ledger and flow drive.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "refit/peer/send_roster.h"
#include "refit/stream/bucket_packer.h"
#include "refit/stream/send_flow.h"
#include "refit/stream/slot_ledger.h"
#include "refit/sync/command.h"
#include "sim/engine.h"
#include "sim/weights.h"

namespace refit::sim {

class PolicyProcess;

// What an agent asks a policy worker for.
struct OpenedStream {
  sync::Stamp stamp;  // of the transfer
  SlotIndex slot;
  Incarnation policy;
  std::uint64_t serial = 0;  // of this opening; what comes back names it
};

struct Announcement {
  AttemptId attempt;
  Incarnation incarnation;  // the engine's
  std::size_t slot = 0;
  stream::Bucket bucket;
  Digest digest;
  std::shared_ptr<LoadMemory> memory;  // what the slot is, to whoever maps or reads it
};

using peer::SendEnd;
using peer::SendResult;

class SendStream {
 public:
  SendStream(PolicyProcess& policy, SlotIndex slot);

  // Begins the stream of an attempt; done is called once, when the source was iterated to the end.
  void Open(const OpenedStream& open, Content content, Instant deadline, std::function<void(SendResult)> done);
  void Release(AttemptId attempt, LoadSeq seq);
  void Stop(SendEnd why, const Status& status);
  bool running() const { return done_ != nullptr; }
  std::uint64_t serial() const { return open_.serial; }
  const OpenedStream& open() const { return open_; }
  void CheckAtRest() const;

 private:
  void Go();
  void Fill(const stream::SendStep& step);
  void Announce(const stream::SendStep& step);
  void End();

  PolicyProcess& policy_;
  const SlotIndex slot_;
  stream::SlotLedger ledger_;
  std::vector<std::shared_ptr<LoadMemory>> slots_;
  std::vector<std::shared_ptr<LoadMemory>> left_;  // to ranks that may still read them

  OpenedStream open_;
  Content content_ = 0;
  std::vector<stream::PackedBucket> buckets_;
  std::vector<Digest> digests_;                  // of the buckets, as they are filled
  std::vector<std::vector<std::byte>> tensors_;  // as packed so far, for the root
  std::optional<stream::SendFlow> flow_;
  SendResult result_;
  std::function<void(SendResult)> done_;
  bool filling_ = false;    // nothing else is done until then
  std::uint64_t turn_ = 0;  // of the stream; what was started for an earlier one is over
};

}  // namespace refit::sim
