// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// An agent's end of the data path in one transfer: streams, gates, aligner, update calls; on a link also the reads and
// the places where pieces become loads. As runtime/load_receiver.cc and load_puller.cc do it, without their threads.

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "refit/peer/engine_agent.h"
#include "refit/stream/announcement_gate.h"
#include "refit/stream/landing_ledger.h"
#include "refit/stream/load_assembler.h"
#include "refit/stream/name_aligner.h"
#include "sim/engine.h"
#include "sim/send_stream.h"

namespace refit::sim {

class AgentProcess;

// Where a link's loads are put, for one stream in one life.
struct Landing {
  stream::LandingLedger ledger;
  std::array<std::shared_ptr<LoadMemory>, stream::kLandingPlaces> places;
};

class Transfer {
 public:
  using Post = std::function<void(const peer::EngineAgentEvent&)>;

  Transfer(AgentProcess& agent, peer::StartTransfer start, Engine& engine, std::map<PolicyRank, Landing>& landings,
           Post post);

  void Begin();
  // ---- from policy workers
  void OnOpened(PolicyRank rank, AttemptId attempt, std::size_t slots);
  void OnAnnounced(PolicyRank rank, const Announcement& announcement);
  void OnFailed(PolicyRank rank, AttemptId attempt, const Status& status);
  // ---- from the machine
  void PostUpdate(const peer::PostUpdate& update);
  void Stop(std::function<void()> fenced);

  AttemptId attempt() const { return start_.stamp.attempt; }
  bool exhausted() const;

 private:
  struct Load {  // announced or assembled, not yet handed on
    LoadSeq seq;
    std::shared_ptr<LoadMemory> memory;
    stream::Batch tensors;
  };
  // A read of a piece: what lands copies whatever is in the sender's slot by then to where it was told.
  struct Read {
    std::shared_ptr<LoadMemory> source;
    std::vector<stream::Placement> placements;
    std::vector<std::shared_ptr<LoadMemory>> targets;
    bool late = false;       // lands when everybody has given it up
    bool unfenced = false;   // its cancel is refused
    bool cancelled = false;  // fenced: never lands
    bool landed = false;
  };
  struct Piece {
    Announcement announcement;
    stream::AssemblyStep step;
    std::shared_ptr<Read> read;  // null: not begun
  };
  struct Stream {
    Stream(sync::StreamSource from, const sync::Stamp& stamp, ByteCount piece)
        : source(std::move(from)), gate(stamp.attempt, stamp.incarnation), assembler(piece, 2 * piece) {}

    sync::StreamSource source;
    std::uint64_t serial = 0;
    stream::AnnouncementGate gate;
    std::deque<Load> loads;
    std::optional<Load> current;  // what the aligner works on
    bool ended = false;           // no load comes after those in `loads`
    // of a link
    stream::LoadAssembler assembler;
    stream::LandingTurns turns;
    std::deque<Piece> pieces;
    std::map<std::uint64_t, std::shared_ptr<LoadMemory>> open;
  };
  struct Spent {
    std::size_t stream = 0;
    LoadSeq seq;
  };
  struct Call {
    std::vector<RankPayload> ranks;
    std::vector<std::shared_ptr<LoadMemory>> memories;
    std::vector<Spent> spent;
    sync::TransferTotals totals;
  };

  Stream* Find(PolicyRank rank);
  void Fail(const Status& status);
  Status TakeLoad(Stream& stream, const Announcement& announcement);
  Status TakePiece(Stream& stream, const Announcement& announcement);
  void StartReads(Stream& stream);
  bool PlaceLoads(Stream& stream, const stream::AssemblyStep& step);
  void StartRead(Stream& stream, Piece& piece);
  void Land(PolicyRank rank, const std::shared_ptr<Read>& read, bool flip);
  void FinishPieces(Stream& stream);
  static Digest LandedDigest(const Piece& piece);
  void Go();
  bool AcceptPulls();  // false: some stream is still waited for
  void Prepare(const stream::AlignedGroup& group);
  void AwaitRanks(const Call& call, std::uint64_t id, const sync::Answer& answer, Instant until);
  void Answered(const Call& call, std::uint64_t id, const sync::Answer& answer);
  void GiveBack(const Spent& spent);
  void EndIfDone();
  void Leave();
  void FinishStop();

  AgentProcess& agent_;
  const peer::StartTransfer start_;
  Engine& engine_;
  std::map<PolicyRank, Landing>& landings_;
  Post post_;
  std::vector<Stream> streams_;
  stream::NameAligner aligner_;
  bool aligned_ = false;  // every stream has ended
  std::deque<Call> prepared_;
  std::size_t in_flight_ = 0;
  sync::TransferTotals totals_;
  bool over_ = false;  // ended or failed: nothing more is said
  bool stopped_ = false;
  std::function<void()> fenced_;
};

}  // namespace refit::sim
