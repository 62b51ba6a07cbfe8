// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/load_assembler.h"

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::stream {
namespace {

Status Broken(std::string what) {
  return DataLoss(std::move(what), "the stream is broken: transfer the complete set again");
}

}  // namespace

Result<AssemblyStep> LoadAssembler::Accept(const Bucket& piece) {
  if (finished_) {
    return FailedPrecondition(StrCat("bucket ", piece.seq, " after the end of its stream"));
  }
  finished_ = true;  // after any failure below the stream is of no more use
  if (piece.seq != next_) {
    return Broken(StrCat("bucket ", piece.seq, " arrived, expected ", next_));
  }
  REFIT_RETURN_IF_ERROR(CheckBucket(piece, piece_capacity_));

  AssemblyStep step;
  for (const Entry& entry : piece.entries) {
    REFIT_RETURN_IF_ERROR(AcceptEntry(entry, step));
  }
  if (piece.is_last) {
    if (joined_.has_value()) {
      return Broken(StrCat("the stream ended at byte ", *joined_, " of tensor ", load_->tensors.back().spec.name));
    }
    Close(step);
  }
  step.is_last = REFIT_MUTANT("RC-BKT-11/wait-for-ever", piece.is_last, piece.is_last && !piece.entries.empty());
  next_ = next_.Next();
  finished_ = step.is_last;
  return step;
}

Status LoadAssembler::AcceptEntry(const Entry& entry, AssemblyStep& step) {
  REFIT_ASSIGN_OR_RETURN(const ByteCount size, SizeOf(entry.spec));
  if (!joined_.has_value()) {
    Place(entry.spec, size, step);
    joined_ = 0;
  }
  const BatchTensor& tensor = load_->tensors.back();
  if (REFIT_MUTANT("RC-BKT-04/any-tensor", entry.spec != tensor.spec, false)) {
    return Broken(
        StrCat("tensor ", ToString(entry.spec), " arrived at byte ", *joined_, " of tensor ", ToString(tensor.spec)));
  }
  if (REFIT_MUTANT("RC-BKT-04/count-bytes-only", entry.chunk_offset != *joined_, false)) {
    return Broken(
        StrCat("byte ", entry.chunk_offset, " of tensor ", entry.spec.name, " arrived, expected byte ", *joined_));
  }
  step.placements.push_back({.load = load_->number,
                             .source_offset = entry.offset,
                             .target_offset = tensor.location + entry.chunk_offset,
                             .size = entry.chunk_size});
  *joined_ += entry.chunk_size;
  if (*joined_ == size) {
    joined_.reset();
  }
  return OkStatus();
}

// The same cuts as Pack makes of loads: what is installed does not depend on the transport. Nothing fits behind a
// tensor that is larger than load_bytes.
void LoadAssembler::Place(const weights::TensorSpec& spec, ByteCount size, AssemblyStep& step) {
  if (load_.has_value()) {
    const ByteCount alignment = REFIT_MUTANT("RC-BKT-02/no-rounding-in-a-load", weights::ItemSize(spec.dtype), 1);
    const ByteCount at = RoundUp(load_->used, alignment);
    const bool fits = at <= load_bytes_ && size <= load_bytes_ - at;
    if (REFIT_MUTANT("RC-PAY-08/overfill-a-load", fits, true)) {
      load_->tensors.push_back({.spec = spec, .location = at});
      load_->used = at + size;
      return;
    }
    Close(step);
  }
  load_ = ClosedLoad{.number = loads_++, .used = size, .tensors = {{.spec = spec, .location = 0}}};
  if (REFIT_MUTANT("RC-RX-04/static-scratch", true, size <= load_bytes_ || load_->number == 0)) {
    step.opened.push_back({.number = load_->number, .capacity = std::max(size, load_bytes_)});
  }
}

void LoadAssembler::Close(AssemblyStep& step) {
  if (load_.has_value()) {
    step.closed.push_back(*std::move(load_));
    load_.reset();
  }
}

}  // namespace refit::stream
