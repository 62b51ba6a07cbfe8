// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/bucket_merger.h"

#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::stream {
namespace {

Status Broken(std::string what) {
  return DataLoss(std::move(what), "the stream is broken: transfer the complete set again");
}

}  // namespace

Result<MergeStep> BucketMerger::Accept(const Bucket& bucket) {
  if (finished_) {
    return FailedPrecondition(StrCat("bucket ", bucket.seq, " after the end of its stream"));
  }
  finished_ = true;  // after any failure below the stream is of no more use
  if (bucket.seq != next_) {
    return Broken(StrCat("bucket ", bucket.seq, " arrived, expected ", next_));
  }
  REFIT_RETURN_IF_ERROR(CheckBucket(bucket, capacity_));

  MergeStep step;
  for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
    REFIT_RETURN_IF_ERROR(AcceptEntry(bucket, i, step));
  }
  if (bucket.is_last && open_.has_value()) {
    return Broken(StrCat("the stream ended at byte ", joined_, " of tensor ", open_->name));
  }
  step.is_last = REFIT_MUTANT("RC-BKT-11/wait-for-ever", bucket.is_last, bucket.is_last && !bucket.entries.empty());
  next_ = next_.Next();
  finished_ = step.is_last;
  return step;
}

Status BucketMerger::AcceptEntry(const Bucket& bucket, std::size_t index, MergeStep& step) {
  const Entry& entry = bucket.entries[index];
  REFIT_ASSIGN_OR_RETURN(const ByteCount size, SizeOf(entry.spec));
  const bool is_whole = entry.chunk_size == size;
  if (is_whole && !open_.has_value()) {
    step.tensors.push_back({.spec = entry.spec, .size = size, .reassembled = false, .offset = entry.offset});
    return OkStatus();
  }
  // The packer opens a bucket for every chunk of a large tensor. So a step never joins more than one tensor.
  if (entry.offset != 0) {
    return Broken(StrCat("a chunk of tensor ", entry.spec.name, " starts at byte ", entry.offset, " of bucket ",
                         bucket.seq, ", not at its start"));
  }
  if (!open_.has_value()) {
    open_ = entry.spec;
    joined_ = 0;
    if (REFIT_MUTANT("RC-RX-04/static-scratch", true, bucket.seq == LoadSeq(0))) {
      step.assembly_size = size;
    }
  }
  if (REFIT_MUTANT("RC-BKT-04/any-tensor", entry.spec != *open_, false)) {
    return Broken(
        StrCat("tensor ", ToString(entry.spec), " arrived at byte ", joined_, " of tensor ", ToString(*open_)));
  }
  if (REFIT_MUTANT("RC-BKT-04/count-bytes-only", entry.chunk_offset != joined_, false)) {
    return Broken(
        StrCat("byte ", entry.chunk_offset, " of tensor ", entry.spec.name, " arrived, expected byte ", joined_));
  }
  step.copies.push_back({.source = 0,
                         .source_offset = entry.offset,
                         .target_offset = entry.chunk_offset,
                         .size = entry.chunk_size,
                         .entry = index});
  joined_ += entry.chunk_size;
  if (joined_ == size) {
    step.tensors.push_back({.spec = entry.spec, .size = size, .reassembled = true, .offset = 0});
    open_.reset();
  }
  return OkStatus();
}

}  // namespace refit::stream
