// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a controller tells the far ends, and what they answer. Plain values; rpc/ carries them, peer/ checks them.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/sync/residue.h"
#include "refit/sync/stamp.h"
#include "refit/weights/manifest.h"

namespace refit::sync {

// ---- controller -> agent

enum class AgentCommandKind : std::uint8_t {
  kBind,           // open a proved link to each policy worker of `streams` that is not bound yet; touches no engine
  kAttempt,        // a new attempt: check the manifest, forget the old attempt; touches no engine
  kOnloadWeights,  // the steps of the envelope, one engine call each
  kPause,
  kFlush,
  kBegin,
  kTransfer,   // receive and install every load
  kEnd,        // close the session; then the engine is kComplete
  kActivate,   // label, onload(kv_cache), resume: serve V. Idempotent in SERVING(V)
  kResumeOld,  // end where begun, onload(kv_cache), resume: serve V-1 again. Only from kOld, and only if the engine
               // holds stamp.version: this command alone names the version to resume there
  kRelease,    // release both memory tags (needs_offload)
  kAbort,      // stop the transfer and fence it; where nothing runs, only say what the engine holds. Overtakes
  kHold,       // confirm paused: every earlier command is dead. Overtakes
  kKill,       // end this incarnation
};
std::string_view ToString(AgentCommandKind kind);

// A stream of loads: which policy rank feeds which of the engine's TP ranks (settled D3).
struct StreamSource {
  PolicyRank policy;
  std::string address;                  // of its control channel
  Incarnation incarnation;              // of the policy worker
  std::vector<std::uint32_t> tp_ranks;  // fed by this stream; streams of one engine partition its ranks
  LinkId link;  // that carries it, as its bind was answered; an attempt uses exactly that one (RX-BIND-06)

  // The same pair, whatever carries it: nothing to bind anew (RC-BIND-04).
  bool SamePair(const StreamSource& other) const {
    return policy == other.policy && address == other.address && incarnation == other.incarnation &&
           tp_ranks == other.tp_ranks;
  }

  friend bool operator==(const StreamSource&, const StreamSource&) = default;
};

struct AgentCommand {
  Stamp stamp;
  AgentCommandKind kind;
  Duration budget{};                                  // what is left for this command; never a timestamp (RX-TIME-01)
  std::shared_ptr<const weights::Manifest> manifest;  // kAttempt; immutable, shared by commands
  std::vector<StreamSource> streams;                  // kBind, kAttempt
  Digest digest;  // kEnd: the root that the senders reported; kActivate: of the members
};

enum class ReplyKind : std::uint8_t {
  kDone,
  kFailed,   // `status` says why; the residue says what the engine now holds
  kStale,    // a fence refused it; nothing was done
  kUnbound,  // kAttempt: a link of it is not the one that is bound; bind again (RX-BIND-06)
};

struct TransferTotals {
  std::uint64_t tensors = 0;  // delivered, summed over ranks
  std::uint64_t loads = 0;    // `update` calls
  ByteCount bytes = 0;        // delivered, summed over ranks
  Duration staged{};          // an agent's: from the transfer's start until its last load was ready for the engine
  Duration installing{};      // an agent's: in `update` calls, until every rank had let go
  friend bool operator==(const TransferTotals&, const TransferTotals&) = default;
};

struct AgentReply {
  Stamp stamp;  // of the command
  ReplyKind kind;
  Status status;
  Residue residue;
  TransferTotals totals;           // kTransfer
  bool retryable_in_place = true;  // false once the incarnation is to be killed
  // What the agent's machine says of itself: a successor knows nothing else (RX-JRNL-04).
  Term highest_term{};                // accepted; above the stamp's: whoever sent it is superseded (RX-LEAD-04)
  AttemptId attempt{};                // that the machine is in
  bool serving = false;               // not paused
  bool died_in_update = false;        // while an `update` was out: a class of its own (RX-QUAR-08)
  std::vector<StreamSource> links{};  // kBind: the streams with their links
};

// ---- controller -> policy worker

enum class PolicyCommandKind : std::uint8_t {
  kLease,    // take the weight lease: open the source, answer with its manifest
  kSend,     // pack every load and stream it to each receiver
  kAbort,    // stop sending, iterate to the end, fence
  kRelease,  // give the lease back
};
std::string_view ToString(PolicyCommandKind kind);

struct Receiver {
  SlotIndex slot;
  Incarnation incarnation;
  std::vector<std::uint32_t> tp_ranks;  // that this stream feeds
  friend bool operator==(const Receiver&, const Receiver&) = default;
};

struct PolicyCommand {
  Stamp stamp;  // incarnation: the policy worker's
  PolicyCommandKind kind;
  Duration budget{};
  std::string source;               // kLease: a checkpoint folder, or empty for the worker's default
  std::vector<Receiver> receivers;  // kSend; none: drain (RC-ROLE-01)
};

struct PolicyReply {
  Stamp stamp;
  ReplyKind kind;
  Status status;
  std::shared_ptr<const weights::Manifest> manifest;  // kLease
  Digest digest;                                      // kSend: the root of what was sent (D7)
  TransferTotals totals;                              // kSend: published once, not per receiver
  Term highest_term{};                                // accepted
};

}  // namespace refit::sync
