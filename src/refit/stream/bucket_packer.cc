// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/bucket_packer.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::stream {
namespace {

// The copies of a tensor, handed out in chunks that follow one another.
class CopyCursor {
 public:
  explicit CopyCursor(const weights::PlannedTensor& tensor) : tensor_(tensor) {}

  // Appends the copies that fill `size` bytes from target_offset of a bucket on.
  void Take(ByteCount size, ByteCount target_offset, std::size_t entry, CopyPlan& out) {
    while (size > 0) {
      REFIT_CHECK(next_ < tensor_.copies.size(), "a plan covers every byte of its tensors (CheckPlan)");
      const weights::PlannedCopy& copy = tensor_.copies[next_];
      const ByteCount taken = std::min(size, copy.size - done_);
      out.push_back({.source = copy.source,
                     .source_offset = copy.source_offset + done_,
                     .target_offset = target_offset,
                     .size = taken,
                     .entry = entry});
      size -= taken;
      target_offset += taken;
      done_ += taken;
      if (done_ == copy.size) {
        ++next_;
        done_ = 0;
      }
    }
  }

 private:
  const weights::PlannedTensor& tensor_;
  std::size_t next_ = 0;  // copy
  ByteCount done_ = 0;    // bytes of it
};

class Packer {
 public:
  Packer(PackUnit unit, ByteCount capacity) : unit_(unit), capacity_(capacity) {}

  void Add(const weights::PlannedTensor& tensor) {
    ByteCount limit = capacity_;
    if (unit_ == PackUnit::kLoad) {
      limit = REFIT_MUTANT("RC-PAY-08/cut-it", tensor.size, capacity_);
    }
    limit = REFIT_MUTANT("RC-BKT-03/assume-one-chunk", limit, tensor.size);
    CopyCursor cursor(tensor);
    ByteCount offset = 0;
    // Once for a tensor without elements: it must arrive too (RC-BKT-12).
    do {
      const ByteCount size = std::min(limit, tensor.size - offset);
      AddChunk(tensor, offset, size, cursor);
      offset += size;
    } while (offset < tensor.size);
  }

  std::vector<PackedBucket> Finish() {
    current_.bucket.is_last = true;
    Publish();
    return std::move(buckets_);
  }

 private:
  void AddChunk(const weights::PlannedTensor& tensor, ByteCount chunk_offset, ByteCount size, CopyCursor& cursor) {
    const ByteCount alignment = REFIT_MUTANT("RC-BKT-01/no-alignment", weights::ItemSize(tensor.spec.dtype), 1);
    const ByteCount filled = current_.bucket.used;
    ByteCount at = REFIT_MUTANT("RC-BKT-02/no-rounding", RoundUp(filled, alignment), filled);
    bool fits = REFIT_MUTANT("RC-BKT-01/equal-does-not-fit", at + size <= capacity_, at + size < capacity_);
    fits = REFIT_MUTANT("RC-PAY-08/add-its-neighbour", fits, fits || filled > capacity_);
    // A load larger than the capacity may be the first: then there is nothing to publish before it.
    if (!fits && !current_.bucket.entries.empty()) {
      Publish();
      at = 0;
    }
    std::vector<Entry>& entries = current_.bucket.entries;
    cursor.Take(size, at, entries.size(), current_.copies);
    entries.push_back({.spec = tensor.spec, .chunk_offset = chunk_offset, .chunk_size = size, .offset = at});
    entries.back().spec.dtype =
        REFIT_MUTANT("RC-BKT-05/assume-one-dtype", tensor.spec.dtype, entries.front().spec.dtype);
    current_.bucket.used = at + size;
  }

  void Publish() {
    const LoadSeq next = current_.bucket.seq.Next();
    buckets_.push_back(std::move(current_));
    current_ = PackedBucket();
    current_.bucket.seq = next;
  }

  const PackUnit unit_;
  const ByteCount capacity_;
  PackedBucket current_;
  std::vector<PackedBucket> buckets_;
};

}  // namespace

Result<std::vector<PackedBucket>> Pack(const weights::ReshardPlan& plan, PackUnit unit, ByteCount capacity) {
  if (capacity == 0) {
    return InvalidArgument("buckets of 0 bytes", "give a bucket size of at least 1");
  }
  Packer packer(unit, capacity);
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const weights::PlannedTensor& tensor =
        plan.tensors[REFIT_MUTANT("RC-BKT-01/greedy-reorder", i, plan.tensors.size() - 1 - i)];
    const bool is_new = names.insert(tensor.spec.name).second;
    if (REFIT_MUTANT("RC-BKT-12/duplicate", !is_new, false)) {
      return InvalidArgument(StrCat("tensor ", tensor.spec.name, " occurs twice"), "send every name once");
    }
    if (REFIT_MUTANT("RC-BKT-12/zero-elements", false, tensor.size == 0)) {
      continue;
    }
    packer.Add(tensor);
  }
  return packer.Finish();
}

ByteCount LargestBucket(const std::vector<PackedBucket>& buckets) {
  ByteCount largest = 1;
  for (const PackedBucket& packed : buckets) {
    largest = std::max(largest, packed.bucket.used);
  }
  return largest;
}

}  // namespace refit::stream
