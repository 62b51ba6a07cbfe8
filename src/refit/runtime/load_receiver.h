// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The agent's receive loop: pulls announcements from every stream, aligns names across ranks, and turns each aligned
// group into prepared `update` calls. Preparing call k+1 overlaps with installing k. Bytes stay where the sender packed
// them: the engine's ranks map the load slots themselves.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/engine/engine.h"
#include "refit/exec/watched.h"
#include "refit/peer/engine_agent.h"
#include "refit/rpc/load_stream.h"
#include "refit/runtime/sender_memory.h"
#include "refit/stream/name_aligner.h"
#include "refit/stream/update_group.h"
#include "refit/sync/engine_call.h"

namespace refit::runtime {

struct LoadReceiverOptions {
  peer::StartTransfer start;
  SlotIndex slot;
  std::uint32_t tp_size = 1;
  ByteCount load_bytes = 0;
  stream::DTypeSplit split = stream::DTypeSplit::kMixed;
};

class LoadReceiver {
 public:
  // post carries LoadReady, TransferEnded and TransferFailed to the agent's loop; delivered counts bytes over ranks.
  // Everything passed by reference outlives the receiver.
  LoadReceiver(LoadReceiverOptions options, SenderMemory& memory, std::function<void(peer::EngineAgentEvent)> post,
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
  struct LoadUse {  // a load slot that a call's ranks open
    MutableBytes object;
    std::int32_t readers = 0;
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
    std::unique_ptr<rpc::ReceiverStream> channel;
    std::vector<SenderMemory::LoadSlotObject> slots;
    LoadSeq next;  // expected
    bool saw_last = false;
    std::uint32_t slot_index = 0;  // of the current load
    LoadSeq seq;                   // of the current load
    ByteCount used = 0;            // of the current load
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
  Result<std::optional<stream::Batch>> Pull(Stream& stream);
  Status Prepare(const stream::AlignedGroup& group, const std::vector<std::size_t>& spent);
  PreparedCall MakeCall(const stream::AlignedGroup& group) const;
  static sync::Answer Install(engine::Engine& engine, const PreparedCall& prepared, Duration deadline);
  Status WaitForCaller();

  const LoadReceiverOptions options_;
  const Instant deadline_;
  SenderMemory& memory_;
  const std::function<void(peer::EngineAgentEvent)> post_;
  std::atomic<ByteCount>& delivered_;
  std::vector<Stream> streams_;  // built by the loop before the first LoadReady; then channels are used by both threads
  exec::Watched<Shared> shared_;
  std::thread loop_;
};

}  // namespace refit::runtime
