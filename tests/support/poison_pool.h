// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// The double of one rank's receiver (RC-RX-03): its batches are views into recycled buffers, and the advance to batch
// n+1 overwrites every byte of batch n with a poison pattern, at once. Whoever keeps a view across an advance reads
// poison. Every test double of a receiver must be built on this one.

#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/check.h"
#include "refit/stream/name_aligner.h"

namespace refit::test {

struct PooledTensor {
  weights::TensorSpec spec;
  std::string bytes;  // never made of kPoison alone
};

class PoisonPool {
 public:
  static constexpr char kPoison = '\xa5';

  explicit PoisonPool(std::vector<std::vector<PooledTensor>> batches) : batches_(std::move(batches)) {}

  // Poisons the previous batch, then yields the next one in the other buffer; nothing at the end of the stream.
  std::optional<stream::Batch> Pull() {
    buffers_[current_].assign(buffers_[current_].size(), kPoison);
    if (next_ == batches_.size()) {
      return std::nullopt;
    }
    current_ = 1 - current_;
    std::string& buffer = buffers_[current_];
    buffer.clear();
    stream::Batch batch;
    for (const PooledTensor& tensor : batches_[next_]) {
      batch.push_back({.spec = tensor.spec, .location = LocationOf(current_, buffer.size())});
      buffer += tensor.bytes;
    }
    ++next_;
    return batch;
  }

  // The bytes that a view shows now.
  std::string Read(const stream::BatchTensor& tensor) const {
    const std::string& buffer = buffers_[tensor.location % 2];
    const std::size_t begin = tensor.location / 2;
    const std::size_t size = SizeOf(tensor.spec).value();
    std::string out = begin < buffer.size() ? buffer.substr(begin, size) : std::string();
    out.resize(size, kPoison);  // the buffer now holds a shorter batch: what was behind it is gone
    return out;
  }

  std::size_t batch_count() const { return batches_.size(); }

 private:
  static std::size_t LocationOf(std::size_t buffer, std::size_t offset) { return offset * 2 + buffer; }

  std::vector<std::vector<PooledTensor>> batches_;
  std::size_t next_ = 0;
  std::size_t current_ = 0;
  std::array<std::string, 2> buffers_;
};

}  // namespace refit::test
