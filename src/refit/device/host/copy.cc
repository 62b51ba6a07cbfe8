// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/copy.h"

#include <algorithm>
#include <cstring>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::device {
namespace {

// Plans come from our own core, but sources come from files: a plan of one manifest on a shorter source must not read
// beyond it.
Status CheckPlan(const stream::CopyPlan& plan, std::span<const Bytes> sources, ByteCount target_size,
                 std::size_t entry_count) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const stream::Copy& copy = plan[i];
    if (copy.source >= sources.size()) {
      return Internal(StrCat("copy ", i, " reads source ", copy.source, " of ", sources.size()));
    }
    const std::optional<ByteCount> source_end = CheckedAdd(copy.source_offset, copy.size);
    if (!source_end || *source_end > sources[copy.source].size()) {
      return DataLoss(StrCat("copy ", i, " reads ", copy.size, " bytes at ", copy.source_offset, " of source ",
                             copy.source, ", which has ", sources[copy.source].size()),
                      "the source changed since its manifest was read; load it again");
    }
    const std::optional<ByteCount> target_end = CheckedAdd(copy.target_offset, copy.size);
    if (!target_end || *target_end > target_size) {
      return Internal(
          StrCat("copy ", i, " writes ", copy.size, " bytes at ", copy.target_offset, " of a target of ", target_size));
    }
    if (copy.entry >= entry_count || (i > 0 && copy.entry < plan[i - 1].entry)) {
      return Internal(
          StrCat("copy ", i, " belongs to entry ", copy.entry, ": out of order, or not among ", entry_count));
    }
  }
  return OkStatus();
}

// One memory pass: a block is hashed while the caches still hold it.
void CopyAndHash(const stream::Copy& copy, Bytes source, MutableBytes target, DigestHasher* hasher,
                 DigestHasher* running) {
  if (hasher == nullptr) {
    std::memcpy(target.data() + copy.target_offset, source.data() + copy.source_offset, copy.size);
    return;
  }
  const ByteCount block_size = REFIT_MUTANT("RX-SUM-06/second-pass", kHashBlock, copy.size);
  for (ByteCount done = 0; done < copy.size;) {
    const ByteCount size = std::min(block_size, copy.size - done);
    const MutableBytes block = target.subspan(copy.target_offset + done, size);
    std::memcpy(block.data(), source.data() + copy.source_offset + done, size);
    hasher->Update(block);
    if (running != nullptr) {
      running->Update(block);
    }
    done += size;
  }
}

void RunChecked(const stream::CopyPlan& plan, std::span<const Bytes> sources, MutableBytes target, DigestHasher* hasher,
                DigestHasher* running, std::vector<Digest>& digests) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const stream::Copy& copy = plan[i];
    if (hasher != nullptr && (i == 0 || copy.entry != plan[i - 1].entry)) {
      hasher->Reset();
    }
    if (copy.size > 0) {
      CopyAndHash(copy, sources[copy.source], target, hasher, copy.entry == 0 ? running : nullptr);
    }
    if (hasher != nullptr && (i + 1 == plan.size() || copy.entry != plan[i + 1].entry)) {
      digests[copy.entry] = hasher->Finish();
    }
  }
}

Status Run(const stream::CopyPlan& plan, std::span<const Bytes> sources, MutableBytes target, std::size_t entry_count,
           DigestHasher* hasher, DigestHasher* running, std::vector<Digest>& digests) {
  REFIT_RETURN_IF_ERROR(CheckPlan(plan, sources, target.size(), entry_count));
  Digest empty;  // of an entry without bytes
  if (hasher != nullptr) {
    hasher->Reset();
    empty = hasher->Finish();
  }
  digests.assign(entry_count, empty);
  return GuardMapped("a source tensor or the target buffer",
                     [&] { RunChecked(plan, sources, target, hasher, running, digests); });
}

}  // namespace

Status RunCopies(const stream::CopyPlan& plan, std::span<const Bytes> sources, MutableBytes target,
                 std::size_t entry_count, DigestHasher* hasher, std::vector<Digest>& digests) {
  return Run(plan, sources, target, entry_count, hasher, nullptr, digests);
}

Status RunCopiesOfChunk(const stream::CopyPlan& plan, std::span<const Bytes> sources, MutableBytes target,
                        std::size_t entry_count, DigestHasher& hasher, DigestHasher& running,
                        std::vector<Digest>& digests) {
  return Run(plan, sources, target, entry_count, &hasher, &running, digests);
}

}  // namespace refit::device
