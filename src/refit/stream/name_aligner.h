// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Brings the independent streams of one engine's ranks to the same names in the same order (contract §8).
// The caller pulls one batch for every stream in Wanted(), concurrently, lets every pull settle, hands all of them in,
// and then takes groups until there is none: a stream is asked again only once its own queue has drained, so never is
// more than one of its batches alive (RC-ALN-02).

#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "refit/base/status.h"
#include "refit/weights/tensor_spec.h"

namespace refit::stream {

// A tensor of a batch, with where its bytes are: an index that only the caller understands.
struct BatchTensor {
  weights::TensorSpec spec;
  std::size_t location = 0;
};

using Batch = std::vector<BatchTensor>;   // ordered, complete tensors, valid until the stream's next pull
using AlignedGroup = std::vector<Batch>;  // one list per stream, equal names and dtypes in equal order

class NameAligner {
 public:
  // stream_count 0 is NO_RECEIVERS, reported by the first Next().
  explicit NameAligner(std::size_t stream_count);

  // Streams whose queue is empty and that have not ended, ascending.
  std::vector<std::size_t> Wanted() const;

  // The outcome of one pull: a batch, or nothing at the end of the stream. An empty batch is an error (RC-ALN-05).
  Status Accept(std::size_t stream, std::optional<Batch> batch);

  // After every wanted stream was accepted: the next group, or nothing when all streams ended.
  // Fails with STREAMS_ENDED_DIFFERENTLY or ORDER_DIVERGED, naming streams, names and dtypes.
  // Precondition: Wanted() was served. The group is consumed before the next pull.
  Result<std::optional<AlignedGroup>> Next();

 private:
  bool AllHaveTensors() const;
  Status TakeRow(AlignedGroup& group);  // moves every stream's head into its list

  std::vector<std::deque<BatchTensor>> queues_;
  std::vector<bool> ended_;
};

}  // namespace refit::stream
