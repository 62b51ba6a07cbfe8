// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The streams of a policy worker's current send: which receiver may open one, and what the send has come to when all of
// them have ended. Bytes flow elsewhere (stream/send_flow.h).
//
// Never: serves a stream that is meant for another life of this worker, or whose receiver's life or attempt is not that
// of the send (RX-ID-02, RX-ID-04); serves a receiver twice in an attempt.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/sync/command.h"

namespace refit::peer {

// What ended a stream early decides what it means: a receiver that left is the controller's to judge (C6), a source
// that cannot be read fails the refit.
enum class SendEnd : std::uint8_t { kComplete, kReceiverLeft, kStopped, kSourceFailed };

struct SendResult {
  SendEnd end = SendEnd::kComplete;
  Status status;
  Digest root;
  sync::TransferTotals totals;  // once, not per rank
};

struct StreamRequest {
  AttemptId attempt;
  SlotIndex slot;
  Incarnation receiver;
  Incarnation policy;  // whom it is meant for
};

enum class Admission : std::uint8_t { kServe, kWait };  // kWait: its attempt's send has not begun here

class SendRoster {
 public:
  explicit SendRoster(const Incarnation& policy) : policy_(policy) {}

  void Start(AttemptId attempt, std::vector<sync::Receiver> receivers);
  // ABORTED: never to be served.
  Result<Admission> Admit(const StreamRequest& request);
  void End(AttemptId attempt, SlotIndex slot, SendResult result);
  // A receiver that has opened no stream so far will not be served any more: the send was stopped, or it has left.
  void Stop() { EndAbsent(SendEnd::kStopped); }
  void GiveUpAbsent() { EndAbsent(SendEnd::kReceiverLeft); }
  // When every stream has ended, once. One receiver that got everything is enough, and so is having none left: the
  // controller judges engines (C6).
  std::optional<SendResult> TakeWhole();

  AttemptId attempt() const { return attempt_; }

 private:
  void EndAbsent(SendEnd end);

  const Incarnation policy_;
  AttemptId attempt_;  // of the last Start
  std::vector<sync::Receiver> receivers_;
  std::set<SlotIndex> running_;
  std::map<SlotIndex, SendResult> results_;
  bool reported_ = true;
};

}  // namespace refit::peer
