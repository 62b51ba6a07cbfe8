// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/transfer.h"

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/stream/update_group.h"
#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/faults.h"
#include "sim/policy_process.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {

// ---- pieces over a link

Status Transfer::TakePiece(Stream& stream, const Announcement& announcement) {
  REFIT_ASSIGN_OR_RETURN(stream::AssemblyStep step, stream.assembler.Accept(announcement.bucket));
  stream.pieces.push_back({announcement, std::move(step), nullptr});
  StartReads(stream);
  return OkStatus();
}

void Transfer::StartReads(Stream& stream) {
  for (Piece& piece : stream.pieces) {
    if (piece.read != nullptr) {
      continue;
    }
    if (!PlaceLoads(stream, piece.step)) {
      return;  // until the engine gives one back
    }
    StartRead(stream, piece);
  }
}

bool Transfer::PlaceLoads(Stream& stream, const stream::AssemblyStep& step) {
  for (const stream::OpenedLoad& opened : step.opened) {
    if (!stream.turns.MayOpen(opened.number)) {
      return false;
    }
  }
  for (const stream::OpenedLoad& opened : step.opened) {
    auto& place = landings_[stream.source.policy].places[opened.number % stream::kLandingPlaces];
    const stream::Readers readers =
        place != nullptr && place->readers > 0 ? stream::Readers::kThere : stream::Readers::kGone;
    if (place == nullptr || stream::LandingLedger::Reuse(readers) == stream::MemoryFate::kReplace) {
      place = std::make_shared<LoadMemory>();
    }
    agent_.sim().checks().OnFill(agent_.slot(), *place, attempt());
    place->bytes.resize(std::max<std::size_t>(place->bytes.size(), opened.capacity));
    stream.open[opened.number] = place;
  }
  return true;
}

void Transfer::StartRead(Stream& stream, Piece& piece) {
  World& world = agent_.sim();
  piece.read = std::make_shared<Read>();
  piece.read->source = piece.announcement.memory;
  piece.read->placements = piece.step.placements;
  for (const stream::Placement& placement : piece.step.placements) {
    piece.read->targets.push_back(stream.open.at(placement.load));
  }
  const PolicyRank rank = stream.source.policy;
  if (world.faults().TakeData(FaultKind::kCutData, rank, agent_.slot())) {
    world.After(kLinkTimeout, [this] { agent_.Run([this] { Fail(Unavailable("a read failed")); }); });
    piece.read->cancelled = true;
    return;
  }
  if (world.faults().TakeData(FaultKind::kLateRead, rank, agent_.slot())) {
    piece.read->late = true;
    piece.read->unfenced = true;
    world.After(kLinkTimeout, [this] { agent_.Run([this] { Fail(DeadlineExceeded("a read did not end")); }); });
  }
  const bool flip = world.faults().TakeData(FaultKind::kFlipBit, rank, agent_.slot());
  world.After(world.Between(Micros(30), Micros(1500)),
              [this, rank, read = piece.read, flip] { Land(rank, read, flip); });
}

// The hardware's doing: it does not ask who still wants it.
void Transfer::Land(PolicyRank rank, const std::shared_ptr<Read>& read, bool flip) {
  World& world = agent_.sim();
  if (read->cancelled) {
    return;
  }
  if (std::exchange(read->late, false)) {
    world.After(world.Between(kLinkTimeout, 4 * kLinkTimeout), [this, rank, read, flip] { Land(rank, read, flip); });
    return;
  }
  for (std::size_t i = 0; i < read->placements.size(); ++i) {
    const stream::Placement& placement = read->placements[i];
    const Bytes from = Bytes(read->source->bytes).subspan(placement.source_offset, placement.size);
    std::ranges::copy(from, read->targets[i]->bytes.begin() + static_cast<std::ptrdiff_t>(placement.target_offset));
    if (flip && i == 0) {
      read->targets[i]->bytes[placement.target_offset] ^= std::byte{4};
    }
  }
  agent_.Run([this, rank, read] {
    read->landed = true;
    if (Stream* const stream = Find(rank); stream != nullptr) {
      FinishPieces(*stream);
      Go();
    }
  });
}

Digest Transfer::LandedDigest(const Piece& piece) {
  std::vector<Digest> chunks;
  for (std::size_t i = 0; i < piece.read->placements.size(); ++i) {
    const stream::Placement& placement = piece.read->placements[i];
    chunks.push_back(DigestOf(Bytes(piece.read->targets[i]->bytes).subspan(placement.target_offset, placement.size)));
  }
  SimHasher hasher;
  return stream::BucketDigest(piece.announcement.bucket, chunks, hasher);
}

void Transfer::FinishPieces(Stream& stream) {
  while (!stream.pieces.empty() && stream.pieces.front().read != nullptr && stream.pieces.front().read->landed) {
    const Piece piece = std::move(stream.pieces.front());
    stream.pieces.pop_front();
    if (LandedDigest(piece) != piece.announcement.digest) {
      return Fail(DataLoss(StrCat("piece ", piece.announcement.bucket.seq, " landed with another digest")));
    }
    agent_.Release(stream.source.policy, attempt(), piece.announcement.bucket.seq);
    for (const stream::ClosedLoad& closed : piece.step.closed) {
      stream.loads.push_back({LoadSeq(closed.number), stream.open.at(closed.number), closed.tensors});
      stream.open.erase(closed.number);
    }
    stream.ended = piece.step.is_last;
  }
}

}  // namespace refit::sim
