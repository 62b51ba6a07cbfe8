// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One stream of loads as the receiver of one transfer sees it: what it brings is judged by stream/announcement_gate.h
// before anybody else looks at it.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/rpc/load_stream.h"
#include "refit/stream/announcement_gate.h"

namespace refit::runtime {

// Thread: one; Release from one other, Cancel from any.
class TransferStream {
 public:
  // Asks a policy worker for a stream of the attempt, to the life, that the stamp names.
  static Result<std::unique_ptr<TransferStream>> Connect(const std::string& address, const rpc::OpenStream& open,
                                                         Instant deadline);

  // Each waits for the sender, and fails with its words where it failed.
  Result<rpc::StreamOpened> Open();
  Result<rpc::LoadAnnouncement> Next();
  bool saw_last() const { return gate_.saw_last(); }
  Status Release(LoadSeq seq) { return channel_->Release({attempt_, seq}); }
  void Cancel() { channel_->Cancel(); }  // the others fail from now on

 private:
  TransferStream(std::unique_ptr<rpc::ReceiverStream> channel, AttemptId attempt, const Incarnation& incarnation)
      : channel_(std::move(channel)), attempt_(attempt), gate_(attempt, incarnation) {}
  Result<stream::Arrival> Judge(const rpc::SenderMessage& message);
  Result<rpc::SenderMessage> NextOfOurs();

  const std::unique_ptr<rpc::ReceiverStream> channel_;
  const AttemptId attempt_;
  stream::AnnouncementGate gate_;
};

}  // namespace refit::runtime
