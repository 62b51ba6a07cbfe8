// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Cuts a plan into buckets (contract §6.1). Boundaries depend only on the (name, dtype, size) sequence, the capacity
// and the mode, so both ends and every attempt cut alike.
//
// Pieces (links): tensors are cut into chunks of at most `capacity` bytes; one that does not fit opens the next bucket.
// Loads (shm, cuda_ipc; RC-PAY-08): tensors stay whole; one larger than `capacity` gets a load of its own, exactly its
// size.

#pragma once

#include <cstdint>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/stream/bucket.h"
#include "refit/stream/copy_plan.h"
#include "refit/weights/reshard_plan.h"

namespace refit::stream {

enum class PackUnit : std::uint8_t { kPiece, kLoad };

struct PackedBucket {
  Bucket bucket;
  CopyPlan copies;  // from source tensors into the bucket's buffer
};

// All buckets of a plan, in order; the last one has is_last, and is empty where the plan is (RC-BKT-11).
// capacity must not be 0. Fails on a name that occurs twice (RC-BKT-12).
Result<std::vector<PackedBucket>> Pack(const weights::ReshardPlan& plan, PackUnit unit, ByteCount capacity);

// The largest bucket, in bytes: what a load slot must hold. At least 1.
ByteCount LargestBucket(const std::vector<PackedBucket>& buckets);

}  // namespace refit::stream
