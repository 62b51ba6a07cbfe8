// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The receiving end of a link: fetches the pieces of one stream as they are announced, several at a time, each to where
// it belongs in a load, checks what landed against the announcement, and gives the piece back to its sender. Runs
// beside the receive loop, so that the streams of several ranks flow at once and ahead of the engine.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/cuda.h"
#include "refit/exec/mailbox.h"
#include "refit/exec/watched.h"
#include "refit/rpc/load_stream.h"
#include "refit/runtime/receiver_memory.h"
#include "refit/runtime/shared_load.h"
#include "refit/runtime/transfer_stream.h"
#include "refit/stream/landing_ledger.h"
#include "refit/stream/load_assembler.h"
#include "refit/stream/name_aligner.h"
#include "refit/transport/transport.h"

namespace refit::runtime {

struct LoadPullerOptions {
  std::string whom;  // "policy rank 0", for errors
  rpc::StreamOpened opened;
  ByteCount load_bytes = 0;  // of a load, at most, but for one tensor that is larger
  Instant deadline;
};

// When things happened in a stream, as the puller saw them: where its time went.
struct PullTimes {
  Instant first_announced{};
  Instant last_announced{};
  Instant last_landed{};
};

// A whole load in memory of the agent's.
struct PulledLoad {
  SharedLoad* load = nullptr;
  std::uint64_t number = 0;
  ByteCount used = 0;
  stream::Batch tensors;
};

class LoadPuller {
 public:
  // channel and end outlive it; only the puller reads from the channel, and only it uses the link.
  static Result<std::unique_ptr<LoadPuller>> Start(LoadPullerOptions options, TransferStream& channel,
                                                   ReceiverMemory::LinkEnd& end);
  ~LoadPuller();  // Stop(), then waits; what cannot be fenced is buried
  LoadPuller(const LoadPuller&) = delete;
  LoadPuller& operator=(const LoadPuller&) = delete;

  // The next load of the stream; nothing at its end. Thread: the receive loop.
  Result<std::optional<PulledLoad>> Next();
  PullTimes times() const { return times_; }  // after the stream's end
  // The engine's ranks have let go of that load: its place may be filled again. Thread: any.
  void GiveBack(std::uint64_t number);
  // Ends both loops soon; the owner cancels the channel. Thread: any.
  void Stop();

 private:
  // A piece that was announced, from its fetch to its release.
  struct Piece {
    LoadSeq seq;
    stream::Bucket bucket;
    Digest digest;
    std::vector<stream::Placement> placements;
    std::vector<transport::OpId> ops;
    std::vector<stream::ClosedLoad> closes;  // whole when every piece up to this one has landed
    std::vector<std::uint64_t> sums;         // GPU: filled by the hash queue
    std::optional<device::GpuTicket> hashed;
  };
  struct Shared {
    std::deque<PulledLoad> ready;
    stream::LandingTurns turns;
    std::optional<Status> ended;  // OK: at the stream's end
    bool stopped = false;
  };

  LoadPuller(LoadPullerOptions options, TransferStream& channel, ReceiverMemory::LinkEnd& end);
  void Read();                  // the reader's loop
  Status Pull();                // the puller's loop, to the end of the stream
  Status TakeNews(bool moved);  // moved: since the last look
  Status Begin(rpc::LoadAnnouncement announcement);
  Status OpenLoad(const stream::OpenedLoad& opened);
  Status Fetch(Piece& piece, const transport::Descriptor& descriptor);
  Result<bool> Advance();  // whether anything moved
  Result<bool> Landed(Piece& piece);
  Result<bool> Checked(Piece& piece);
  Result<std::vector<Digest>> ChunkDigests(const Piece& piece);
  device::Memory Target(const stream::Placement& placement) const;
  Status Finish(Piece& piece);

  const LoadPullerOptions options_;
  TransferStream& channel_;
  transport::Link& link_;
  LoadMemory& memory_;
  stream::LoadAssembler assembler_;
  const std::unique_ptr<DigestHasher> hasher_;
  device::GpuQueue* const hashes_;              // null but where loads lie in GPU memory
  std::map<std::uint64_t, SharedLoad*> loads_;  // by number: those with placements to come
  std::deque<Piece> fetching_;                  // in order
  std::deque<Piece> checking_;                  // landed, in order
  bool saw_last_ = false;
  PullTimes times_;
  exec::Mailbox<Result<rpc::LoadAnnouncement>> announced_;
  exec::Watched<Shared> shared_;
  std::thread reader_;
  std::thread puller_;
};

}  // namespace refit::runtime
