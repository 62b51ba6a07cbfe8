// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The three arrays that CUDA wants of a batch of copies, kept between batches.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "refit/device/cuda.h"

namespace refit::device {

class CopyList {
 public:
  void Assign(std::span<const GpuCopy> copies);  // one for one, but for empty ones
  void Join(std::span<const GpuCopy> copies);    // those that touch on both sides become one
  std::size_t size() const { return sizes_.size(); }
  cudaError_t Enqueue(cudaStream_t stream);

 private:
  std::vector<const void*> from_;
  std::vector<void*> to_;
  std::vector<std::size_t> sizes_;
};

}  // namespace refit::device
