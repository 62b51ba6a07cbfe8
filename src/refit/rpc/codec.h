// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Structs of ours to and from wire messages. What arrives is checked here: a message that no peer of ours can have
// meant is an error, never a default. Private to rpc/.

#pragma once

#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/control/history.h"
#include "refit/control/slot_action.h"
#include "refit/rpc/agent_rpc.h"
#include "refit/rpc/load_stream.h"
#include "refit/rpc/report.h"
#include "refit/sync/command.h"
#include "refit/v1/refit.grpc.pb.h"
#include "refit/weights/rank_hashes.h"

namespace refit::rpc {

inline constexpr int kMaxMessageSize = 64 << 20;  // bytes; a manifest of 100,000 tensors takes about 10 MB

void Encode(const Id128& id, v1::Id128* out);
void Encode(const Status& status, v1::Status* out);
void Encode(const sync::AgentCommand& command, v1::AgentCommand* out);
void Encode(const sync::AgentReply& reply, v1::AgentReply* out);
void Encode(const EngineErrand& errand, v1::EngineErrand* out);
void Encode(const ErrandReply& reply, v1::ErrandReply* out);
void Encode(const sync::PolicyCommand& command, v1::PolicyCommand* out);
void Encode(const sync::PolicyReply& reply, v1::PolicyReply* out);
void Encode(const OpenStream& open, v1::OpenStream* out);
void Encode(const SenderMessage& message, v1::FromSender* out);
void Encode(const sync::Residue& residue, v1::Residue* out);
void Encode(const sync::TransferTotals& totals, v1::TransferTotals* out);
void Encode(const weights::RankHashes& hashes, v1::RankHashes* out);
void Encode(const SyncReport& report, v1::SyncOutcome* out);
void Encode(const FleetReport& report, v1::FleetStatus* out);
void Encode(const VerifyReport& report, v1::VerifyReport* out);
void Encode(const Result<control::History>& history, v1::HistoryReply* out);

template <typename Id>
Id DecodeId(const v1::Id128& in) {
  Id id;
  id.high = in.high();
  id.low = in.low();
  return id;
}
Status Decode(const v1::Status& in);
std::uint32_t EncodeHashKind(ParameterHashKind kind);
Result<ParameterHashKind> DecodeHashKind(std::uint32_t kind);
Result<sync::AgentCommand> Decode(const v1::AgentCommand& in);
Result<sync::AgentReply> Decode(const v1::AgentReply& in);
Result<EngineErrand> Decode(const v1::EngineErrand& in);
Result<ErrandReply> Decode(const v1::ErrandReply& in);
Result<control::SlotAction> DecodeSlotAction(std::uint32_t action);
Result<sync::PolicyCommand> Decode(const v1::PolicyCommand& in);
Result<sync::PolicyReply> Decode(const v1::PolicyReply& in);
Result<OpenStream> Decode(const v1::OpenStream& in);
Result<SenderMessage> Decode(const v1::FromSender& in);
Result<sync::Residue> Decode(const v1::Residue& in);
sync::TransferTotals Decode(const v1::TransferTotals& in);
weights::RankHashes Decode(const v1::RankHashes& in);
Result<SyncReport> Decode(const v1::SyncOutcome& in);
Result<FleetReport> Decode(const v1::FleetStatus& in);
Result<VerifyReport> Decode(const v1::VerifyReport& in);
Result<control::History> Decode(const v1::HistoryReply& in);

// A status and, where it is OK, the hashes of every rank: ChecksumsReply and ExpectedHashesReply.
template <typename Reply>
void EncodeRanks(const Result<std::vector<weights::RankHashes>>& ranks, Reply* out) {
  Encode(ranks.status(), out->mutable_status());
  if (ranks.has_value()) {
    for (const weights::RankHashes& rank : *ranks) {
      Encode(rank, out->add_ranks());
    }
  }
}
template <typename Reply>
Result<std::vector<weights::RankHashes>> DecodeRanks(const Reply& in) {
  REFIT_RETURN_IF_ERROR(Decode(in.status()));
  std::vector<weights::RankHashes> ranks;
  for (const v1::RankHashes& rank : in.ranks()) {
    ranks.push_back(Decode(rank));
  }
  return ranks;
}

}  // namespace refit::rpc
