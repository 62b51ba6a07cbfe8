// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Who needs which bytes: for one receiver rank, the tensors delivered to it and the byte ranges of source tensors that
// make them up. Today there is one kind, `full`; a later one, `direct`, delivers only the rank's rows or columns.
// Nothing outside this header may assume that a delivered tensor is one whole source tensor.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/weights/manifest.h"
#include "refit/weights/tensor_spec.h"

namespace refit::weights {

struct PlannedCopy {
  std::size_t source = 0;       // index in the source manifest
  ByteCount source_offset = 0;  // bytes from the source tensor's start
  ByteCount target_offset = 0;  // bytes from the delivered tensor's start
  ByteCount size = 0;

  friend bool operator==(const PlannedCopy&, const PlannedCopy&) = default;
};

struct PlannedTensor {
  TensorSpec spec;  // as delivered
  ByteCount size = 0;
  std::vector<PlannedCopy> copies;  // cover [0, size) exactly once, ascending by target_offset
};

// For one receiver rank; delivered in this order.
struct ReshardPlan {
  std::vector<PlannedTensor> tensors;
};

// Whole tensors under their own names: what a stock SGLang loads.
ReshardPlan MakeFullPlan(const Manifest& source);

// OK when every tensor of the plan is covered exactly once and no copy leaves its source.
Status CheckPlan(const ReshardPlan& plan, const Manifest& source);

}  // namespace refit::weights
