// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "refit/base/str.h"
#include "sim/checks.h"
#include "sim/world.h"

namespace refit::sim {

void Checks::OnStart(SlotIndex slot, const std::vector<std::unique_ptr<Engine>>& lives) {
  for (const std::unique_ptr<Engine>& life : lives) {
    if (life->slot() == slot && life->alive()) {
      world_.Report(Checker::kInv6,
                    StrCat("engine ", slot, " is started while its life ", life->incarnation().low, " is still there"));
    }
  }
}

void Checks::OnSend(PolicyRank rank, AttemptId attempt, Content content) { sent_[{attempt, rank}] = content; }

void Checks::OnTransfer(const Engine& engine, const peer::StartTransfer& transfer) {
  Book& book = books_[engine.incarnation()];
  book.transfer = transfer.stamp.attempt;
  book.feeds.assign(world_.plan().tp_size, PolicyRank(0));
  for (const sync::StreamSource& stream : transfer.streams) {
    for (const std::uint32_t rank : stream.tp_ranks) {
      book.feeds[rank] = stream.policy;
    }
  }
  book.handed.assign(world_.plan().tp_size, {});
}

// INV-5: nothing of another attempt is taken for this one's, however equal its bytes.
void Checks::OnTaken(SlotIndex slot, std::string_view what, AttemptId told, AttemptId running) {
  if (told != running) {
    world_.Report(Checker::kInv5, StrCat(what, " of attempt ", ToString(told), " for engine ", slot,
                                         " is taken in attempt ", ToString(running)));
  }
}

// INV-5: of the current attempt, in order, exactly once.
void Checks::OnHandOver(const Engine& engine, AttemptId attempt, const std::vector<RankPayload>& ranks) {
  Book& book = books_[engine.incarnation()];
  const auto wrong = [&](const std::string& what) {
    world_.Report(Checker::kInv5, StrCat("engine ", engine.slot(), " is handed ", what));
  };
  if (attempt != book.attempt || book.transfer != book.attempt) {
    wrong(StrCat("a load of attempt ", ToString(attempt), " in attempt ", ToString(book.attempt)));
  }
  book.opened = true;
  const bool in_order = world_.profile().dtype_split == stream::DTypeSplit::kMixed;
  for (std::size_t rank = 0; rank < ranks.size() && rank < book.handed.size(); ++rank) {
    for (const PayloadTensor& tensor : ranks[rank].tensors) {
      if (in_order && tensor.index != book.handed[rank].size()) {
        wrong(StrCat("tensor ", tensor.index, " on rank ", rank, ", tensor ", book.handed[rank].size(), " was next"));
      }
      if (!book.handed[rank].insert(tensor.index).second) {
        wrong(StrCat("tensor ", tensor.index, " on rank ", rank, " twice"));
      }
    }
  }
}

void Checks::OnInstall(const Engine& engine, const std::vector<RankPayload>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    CheckBytes(engine, rank, ranks[rank], "begins to read");
  }
}

void Checks::OnLetGo(const Engine& engine, std::size_t rank, const RankPayload& payload) {
  CheckBytes(engine, rank, payload, "has read");
  if (payload.memory->readers < 0) {
    world_.Report(Checker::kS7, StrCat("a count of engine ", engine.slot(), " was given back twice"));
  }
}

// INV-5: unmodified, as its policy worker holds it.
void Checks::CheckBytes(const Engine& engine, std::size_t rank, const RankPayload& payload, std::string_view when) {
  const Book& book = books_[engine.incarnation()];
  const auto sent = sent_.find({book.transfer, rank < book.feeds.size() ? book.feeds[rank] : PolicyRank(0)});
  if (sent == sent_.end()) {
    world_.Report(Checker::kInv5, StrCat("engine ", engine.slot(), " installs what nobody sent"));
    return;
  }
  for (const PayloadTensor& tensor : payload.tensors) {
    const Bytes meant = world_.weights().tensor(sent->second, tensor.index);
    const Bytes memory = payload.memory->bytes;
    if (tensor.offset + meant.size() > memory.size() ||
        !std::ranges::equal(meant, memory.subspan(tensor.offset, meant.size()))) {
      world_.Report(Checker::kInv5, StrCat("engine ", engine.slot(), " rank ", rank, " ", when, " tensor ",
                                           tensor.index, " with other bytes than content ", sent->second));
      return;
    }
  }
}

// S7, and what the ledgers promise: nobody fills what a rank may still read.
void Checks::OnFill(SlotIndex slot, const LoadMemory& memory, AttemptId attempt) {
  if (memory.readers > 0) {
    world_.Report(Checker::kS7, StrCat("a load slot of engine ", slot, " is filled in attempt ", ToString(attempt),
                                       " while ", memory.readers, " ranks may read it"));
  }
}

// S7: what was lent has come back.
void Checks::OnRest(SlotIndex slot, std::string_view what, const LoadMemory* memory) {
  if (memory == nullptr || memory->readers != 0) {
    world_.Report(Checker::kS7, StrCat(what, " of engine ", slot, memory == nullptr ? " is not free" : " is counted",
                                       " although nothing is under way"));
  }
}

}  // namespace refit::sim
