// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The handshake of a bind (RX-BIND-02): a block of random bytes goes over the very path that weights will take, into
// memory that weights will use, and is compared; both ends compare who they are. Memory is reserved on the way, so that
// what is lacking shows here and not while engines are paused (RC-PAY-10).

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/cuda.h"
#include "refit/device/memory.h"
#include "refit/exec/watched.h"
#include "refit/rpc/load_stream.h"
#include "refit/runtime/load_sender.h"
#include "refit/runtime/receiver_memory.h"
#include "refit/runtime/transfer_stream.h"
#include "refit/sync/command.h"
#include "refit/sync/stamp.h"

namespace refit::runtime {

// What a policy worker refuses before anything moves: another protocol, run, term, or life of its own. `own` is what it
// is itself.
Status CheckReceiver(const rpc::OpenStream& open, const rpc::SenderIdentity& own);

// The policy worker's end; returns when the receiver has given the block back. plan: of the slots' last Prepare.
Status ServeProof(const rpc::OpenStream& open, const SendPlan& plan, LoadSlotSet& slots, rpc::SenderStream& stream,
                  Instant deadline);

struct LinkProofOptions {
  sync::Stamp stamp;  // of the bind
  SlotIndex slot;
  sync::StreamSource source;
  std::vector<rpc::Offer> offers;
  ByteCount load_bytes = 0;
  Duration patience = Duration::max();  // see rpc::OpenStream
  Instant deadline;
};

// The agent's end, and what the link keeps afterwards for transfers. Thread: one at a time, the same that uses memory;
// Stop from any.
class LinkProof {
 public:
  LinkProof(LinkProofOptions options, ReceiverMemory& memory) : options_(std::move(options)), memory_(memory) {}

  Status Run();  // a failed one keeps nothing
  void Stop();   // Run ends soon
  void Close();  // drops what was kept; a dead peer is no obstacle (RC-BIND-03)

 private:
  struct Shared {
    std::unique_ptr<TransferStream> channel;
    bool stopped = false;
  };

  Status Prove();
  Result<TransferStream*> Connect();
  Status CheckSender(const rpc::StreamOpened& opened) const;
  Result<std::vector<std::byte>> ReadMapped(const rpc::StreamOpened& opened, std::uint32_t slot_index);
  Result<std::vector<std::byte>> Fetch(const rpc::StreamOpened& opened, std::uint32_t slot_index);
  Status AwaitFetch(ReceiverMemory::LinkEnd& end, transport::OpId op);

  const LinkProofOptions options_;
  ReceiverMemory& memory_;
  std::vector<std::string> mapped_;  // descriptors
  bool fetches_ = false;
  exec::Watched<Shared> shared_;
};

}  // namespace refit::runtime
