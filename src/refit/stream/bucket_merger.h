// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Joins the pieces of a link back into whole tensors (RC-BKT-03, -04). Not used where loads are mapped in place.

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/stream/bucket.h"
#include "refit/stream/copy_plan.h"
#include "refit/weights/tensor_spec.h"

namespace refit::stream {

// A whole tensor: a view into the landing buffer, or memory that the merger asked for.
struct MergedTensor {
  weights::TensorSpec spec;
  ByteCount size = 0;
  bool reassembled = false;  // false: at `offset` of the landing buffer; true: in the assembly buffer of this tensor
  ByteCount offset = 0;
};

struct MergeStep {
  // Copies out of the landing buffer into the assembly buffer of the one tensor being joined; run them before the
  // landing buffer is reused. assembly_size is its whole size, set when its first chunk arrives: a number from outside,
  // so compare it with the manifest before asking for memory. `source` of every copy is 0, this bucket's buffer.
  CopyPlan copies;
  std::optional<ByteCount> assembly_size;
  std::vector<MergedTensor> tensors;  // complete now, in stream order
  bool is_last = false;
};

class BucketMerger {
 public:
  explicit BucketMerger(ByteCount capacity) : capacity_(capacity) {}

  // The next bucket of the stream. Fails on a wrong sequence number, a bucket that CheckBucket refuses, chunks that
  // are missing, repeated, swapped, interleaved or of another spec, and on a last bucket that leaves a tensor open.
  // After a failure every further bucket is refused.
  Result<MergeStep> Accept(const Bucket& bucket);

 private:
  Status AcceptEntry(const Bucket& bucket, std::size_t index, MergeStep& step);

  ByteCount capacity_;
  LoadSeq next_;
  std::optional<weights::TensorSpec> open_;  // the tensor being joined
  ByteCount joined_ = 0;                     // bytes of it so far
  bool finished_ = false;
};

}  // namespace refit::stream
