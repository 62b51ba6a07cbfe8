// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The agent's receive loop: pulls announcements from every stream, aligns names across ranks, and turns each aligned
// group into prepared `update` calls. Preparing call k+1 overlaps with installing k. Bytes stay where the sender packed
// them and the engine's ranks map the load slots themselves, or come over a link (load_puller.h).

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/engine/engine.h"
#include "refit/exec/clock.h"
#include "refit/exec/watched.h"
#include "refit/peer/engine_agent.h"
#include "refit/rpc/load_stream.h"
#include "refit/runtime/load_puller.h"
#include "refit/runtime/receiver_memory.h"
#include "refit/runtime/shared_load.h"
#include "refit/runtime/transfer_stream.h"
#include "refit/stream/name_aligner.h"
#include "refit/stream/update_group.h"
#include "refit/sync/engine_call.h"

namespace refit::runtime {

struct LoadReceiverOptions {
  peer::StartTransfer start;
  SlotIndex slot;
  std::uint32_t tp_size = 1;
  std::vector<rpc::Offer> offers;
  ByteCount load_bytes = 0;             // of one update call, at most, but for one tensor that is larger
  Duration patience = Duration::max();  // what its senders may have with it, see rpc::OpenStream
  stream::DTypeSplit split = stream::DTypeSplit::kMixed;
};

class LoadReceiver {
 public:
  // post carries LoadReady, TransferEnded and TransferFailed to the agent's loop; delivered counts bytes over ranks.
  // Everything passed by reference outlives the receiver.
  LoadReceiver(LoadReceiverOptions options, ReceiverMemory& memory, std::function<void(peer::EngineAgentEvent)> post,
               std::atomic<ByteCount>& delivered);
  ~LoadReceiver();  // Stop(), then waits for the loop
  LoadReceiver(const LoadReceiver&) = delete;
  LoadReceiver& operator=(const LoadReceiver&) = delete;

  // Makes the `update` call of the oldest LoadReady, waits until every rank has let go of its load, gives spent load
  // slots back to their senders, and posts EngineAnswered. Thread: the engine caller.
  void PostNext(engine::Engine& engine, const peer::PostUpdate& update);

  // Ends the loop soon; pending waits fail. Thread: any.
  void Stop();

 private:
  struct LoadUse {  // a load that a call's ranks open
    SharedLoad* load = nullptr;
    std::size_t readers = 0;
  };
  struct SpentLoad {
    std::size_t stream = 0;
    LoadSeq seq;
  };
  struct PreparedCall {
    engine::UpdateCall call;
    std::vector<LoadUse> uses;
    std::vector<SpentLoad> spent;  // given back after this call
    sync::TransferTotals totals;
  };
  struct Stream {
    sync::StreamSource source;
    std::unique_ptr<TransferStream> channel;
    std::vector<SharedLoad*> slots;      // in place: the sender's
    std::unique_ptr<LoadPuller> puller;  // over a link: of loads of ours
    SharedLoad* load = nullptr;          // the current one
    LoadSeq seq;                         // of the current load
    ByteCount used = 0;                  // of the current load
  };
  struct Shared {
    std::deque<PreparedCall> ready;
    std::uint32_t in_flight = 0;
    sync::TransferTotals totals;
    bool stopped = false;
  };

  void Run();
  Status ReceiveAll();
  Status OpenStreams();
  Status Open(Stream& stream, const rpc::StreamOpened& opened, std::set<std::string>& used);
  Result<std::optional<stream::Batch>> Pull(Stream& stream);
  Result<std::optional<stream::Batch>> PullInPlace(Stream& stream);
  Status Prepare(const stream::AlignedGroup& group, const std::vector<std::size_t>& spent);
  PreparedCall MakeCall(const stream::AlignedGroup& group) const;
  static sync::Answer Install(engine::Engine& engine, const PreparedCall& prepared, Duration deadline);
  Status WaitForCaller();

  const LoadReceiverOptions options_;
  const Instant begun_ = exec::Now();
  const Instant deadline_;
  ReceiverMemory& memory_;
  const std::function<void(peer::EngineAgentEvent)> post_;
  std::atomic<ByteCount>& delivered_;
  std::vector<Stream> streams_;  // built by the loop before the first LoadReady; then channels are used by both threads
  exec::Watched<Shared> shared_;
  bool failed_ = false;  // written by the loop, read when it has ended
  std::thread loop_;
};

}  // namespace refit::runtime
