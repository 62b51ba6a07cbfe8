// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The control channel of one stream of loads (settled D9): the agent opens it at the policy worker and pulls; the
// policy worker announces each load; the agent gives each load slot back. Bytes never travel here.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/stream/bucket.h"
#include "refit/stream/bucket_packer.h"
#include "refit/sync/stamp.h"

namespace refit::rpc {

// Of the control channel: what either end must understand. One number higher with every change that the other end must
// know of; ends that differ refuse each other by name.
inline constexpr std::uint32_t kStreamProtocol = 1;

// How the digests of a stream are made: XXH3-128 by processors; where a GPU holds the bytes at either end, SGLang's GPU
// hash (docs/decisions/0005).
enum class DigestKind : std::uint8_t { kXxh3, kGpuHash };

// A way in which a receiver can take a stream.
struct Offer {
  std::string transport;                            // "shm", "cuda_ipc", "nixl"
  stream::PackUnit unit = stream::PackUnit::kLoad;  // loads are mapped in place, pieces are fetched
  ByteCount bytes = 0;                              // of a load, or of a piece
  DigestKind digests = DigestKind::kXxh3;           // those that it can check; kXxh3: it can check both
  friend bool operator==(const Offer&, const Offer&) = default;
};

enum class StreamPurpose : std::uint8_t {
  kSend,   // the weights of one attempt
  kProve,  // one block of random bytes on the way that weights will take (RX-BIND-02)
};

struct OpenStream {
  sync::Stamp stamp;  // incarnation: the engine's
  SlotIndex slot;
  Incarnation policy_incarnation;  // whom it is meant for
  std::vector<std::uint32_t> tp_ranks;
  std::vector<Offer> offers;            // at least one, in the order of the receiver's wishes
  Duration budget{};                    // what is left of the transfer, or of the bind
  Duration patience = Duration::max();  // with a receiver that gives no load slot back: longer, and it has left
  StreamPurpose purpose = StreamPurpose::kSend;
  std::uint32_t protocol = kStreamProtocol;
};

// The policy worker's end, for the agent to compare.
struct SenderIdentity {
  std::uint32_t protocol = kStreamProtocol;
  RunId run;
  Term term;
  Incarnation incarnation;
  ByteCount bucket_bytes = 0;  // of the offer that is taken
};

// First message of the sender. The slots live as long as the engine's incarnation.
struct StreamOpened {
  AttemptId attempt;
  std::uint32_t offer = 0;  // the one that is taken
  DigestKind digests = DigestKind::kXxh3;
  std::string transport_address;   // where the receiver binds its link
  std::vector<std::string> slots;  // descriptors of the slots, for transport::Link
  ByteCount slot_bytes = 0;        // of the largest of them
  ByteCount total_bytes = 0;       // that the stream will deliver
  SenderIdentity sender{};
};
struct LoadAnnouncement {
  AttemptId attempt;
  Incarnation incarnation;  // the engine's, as the stream was opened for
  std::uint32_t slot_index = 0;
  stream::Bucket bucket;
  Digest digest;  // L1 (RX-SUM)
};
struct StreamFailed {
  AttemptId attempt;
  Status status;
};
using SenderMessage = std::variant<StreamOpened, LoadAnnouncement, StreamFailed>;

struct LoadRelease {
  AttemptId attempt;
  LoadSeq seq;
};

// The policy worker's end. Thread: one; NextRelease only from the same.
class SenderStream {
 public:
  virtual ~SenderStream() = default;
  virtual Status Send(const SenderMessage& message) = 0;
  // Nothing at the deadline, or when the receiver went away (then broken()).
  virtual std::optional<LoadRelease> NextRelease(Instant deadline) = 0;
  virtual bool broken() const = 0;
};

// The agent's end. Thread: one; Cancel from any.
class ReceiverStream {
 public:
  // Connects and asks; every later wait ends by the same deadline.
  static Result<std::unique_ptr<ReceiverStream>> Open(const std::string& address, const OpenStream& open,
                                                      Instant deadline);
  virtual ~ReceiverStream() = default;
  virtual Result<SenderMessage> Next() = 0;  // waits for the sender
  virtual Status Release(LoadRelease release) = 0;
  virtual void Cancel() = 0;  // Next() fails from now on
};

}  // namespace refit::rpc
