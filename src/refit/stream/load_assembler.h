// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides where the pieces of a link go: whole tensors, one after another, in loads of at most load_bytes, the same
// loads that Pack cuts (RC-PAY-08). The chunks of a tensor are fetched to where they belong in the load, so nothing is
// merged or copied again (RC-BKT-03, -04). Not used where loads are mapped in place.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/stream/bucket.h"
#include "refit/stream/name_aligner.h"
#include "refit/weights/tensor_spec.h"

namespace refit::stream {

// One entry of a piece, and where in which load it goes.
struct Placement {
  std::uint64_t load = 0;       // 0, 1, … within the stream
  ByteCount source_offset = 0;  // bytes from the piece's start
  ByteCount target_offset = 0;  // bytes from the load's start
  ByteCount size = 0;
};

// A load whose memory must be there before its first placement.
struct OpenedLoad {
  std::uint64_t number = 0;
  ByteCount capacity = 0;  // load_bytes, or the size of the one tensor that is larger
};

// A load that gets no more tensors: whole once every placement of it has been fetched.
struct ClosedLoad {
  std::uint64_t number = 0;
  ByteCount used = 0;
  Batch tensors;  // in stream order; locations are bytes from the load's start
};

struct AssemblyStep {
  std::vector<OpenedLoad> opened;
  std::vector<Placement> placements;  // one per entry of the piece, in order
  std::vector<ClosedLoad> closed;
  bool is_last = false;
};

class LoadAssembler {
 public:
  // piece_capacity: bytes of the sender's slots. load_bytes: not 0.
  LoadAssembler(ByteCount piece_capacity, ByteCount load_bytes)
      : piece_capacity_(piece_capacity), load_bytes_(load_bytes) {}

  // The next piece of the stream. Fails on a wrong sequence number, a bucket that CheckBucket refuses, chunks that are
  // missing, repeated, swapped, interleaved or of another spec, and on a last piece that leaves a tensor open. After a
  // failure every further piece is refused. Sizes come from outside: compare OpenedLoad::capacity with what may be
  // there before asking for memory.
  Result<AssemblyStep> Accept(const Bucket& piece);

 private:
  Status AcceptEntry(const Entry& entry, AssemblyStep& step);
  // Where a tensor begins: in the load that is being filled, or in a new one.
  void Place(const weights::TensorSpec& spec, ByteCount size, AssemblyStep& step);
  void Close(AssemblyStep& step);

  ByteCount piece_capacity_;
  ByteCount load_bytes_;
  LoadSeq next_;
  std::optional<ClosedLoad> load_;   // the one that is being filled
  std::optional<ByteCount> joined_;  // bytes so far of the tensor that is being joined, the last one of load_
  std::uint64_t loads_ = 0;
  bool finished_ = false;
};

}  // namespace refit::stream
