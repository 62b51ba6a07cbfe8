// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/transfer_stream.h"

#include <variant>

namespace refit::runtime {

Result<std::unique_ptr<TransferStream>> TransferStream::Connect(const std::string& address, const rpc::OpenStream& open,
                                                                Instant deadline) {
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<rpc::ReceiverStream> channel,
                         rpc::ReceiverStream::Open(address, open, deadline));
  return std::unique_ptr<TransferStream>(
      new TransferStream(std::move(channel), open.stamp.attempt, open.stamp.incarnation));
}

Result<stream::Arrival> TransferStream::Judge(const rpc::SenderMessage& message) {
  if (const auto* load = std::get_if<rpc::LoadAnnouncement>(&message)) {
    return gate_.Announced(load->attempt, load->incarnation, load->slot_index, load->bucket.seq, load->bucket.is_last);
  }
  if (const auto* opened = std::get_if<rpc::StreamOpened>(&message)) {
    return gate_.Opened(opened->attempt, opened->slots.size());
  }
  const auto& failed = std::get<rpc::StreamFailed>(message);
  if (gate_.Failed(failed.attempt) == stream::Arrival::kTake) {
    return failed.status;
  }
  return stream::Arrival::kDrop;
}

Result<rpc::SenderMessage> TransferStream::NextOfOurs() {
  while (true) {
    REFIT_ASSIGN_OR_RETURN(rpc::SenderMessage message, channel_->Next());
    REFIT_ASSIGN_OR_RETURN(const stream::Arrival arrival, Judge(message));
    if (arrival == stream::Arrival::kTake) {
      return message;
    }
  }
}

Result<rpc::StreamOpened> TransferStream::Open() {
  REFIT_ASSIGN_OR_RETURN(rpc::SenderMessage message, NextOfOurs());
  auto* const opened = std::get_if<rpc::StreamOpened>(&message);
  if (opened == nullptr) {
    return Aborted("a load was announced before its stream was open");
  }
  return std::move(*opened);
}

Result<rpc::LoadAnnouncement> TransferStream::Next() {
  REFIT_ASSIGN_OR_RETURN(rpc::SenderMessage message, NextOfOurs());
  auto* const load = std::get_if<rpc::LoadAnnouncement>(&message);
  if (load == nullptr) {
    return Aborted("the stream was opened twice");
  }
  return std::move(*load);
}

}  // namespace refit::runtime
