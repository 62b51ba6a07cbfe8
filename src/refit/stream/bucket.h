// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The packed unit: a load on transports that map memory in place, a piece on a link (contract §6).
// The buffer carries bytes only; identity travels in the announcement, stamped, on the control channel.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/weights/tensor_spec.h"

namespace refit::stream {

inline constexpr std::size_t kMaxEntries = 1 << 20;  // per bucket; more is hostile

// One tensor, or one chunk of it (links only).
struct Entry {
  weights::TensorSpec spec;    // of the whole tensor
  ByteCount chunk_offset = 0;  // bytes from the tensor's start
  ByteCount chunk_size = 0;
  ByteCount offset = 0;  // bytes from the bucket's start

  friend bool operator==(const Entry&, const Entry&) = default;
};

struct Bucket {
  LoadSeq seq;  // 0, 1, … within one stream and attempt
  std::vector<Entry> entries;
  ByteCount used = 0;  // bytes from the bucket's start to the end of the last entry
  bool is_last = false;

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// Everything received is hostile until checked (RC-BKT-14): entry count, names, ranks, dims, overflow,
// offset + size <= used <= capacity, alignment of whole tensors, ascending offsets without overlap.
Status CheckBucket(const Bucket& bucket, ByteCount capacity);

// L1 of RX-SUM: over the entries' (name, dtype, shape, offset, chunk digest), as weights/digest_encoding.h writes them.
Digest BucketDigest(const Bucket& bucket, std::span<const Digest> chunk_digests, DigestHasher& hasher);

}  // namespace refit::stream
