// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/cuda/copy_list.h"

namespace refit::device {

void CopyList::Assign(std::span<const GpuCopy> copies) {
  from_.clear();
  to_.clear();
  sizes_.clear();
  for (const GpuCopy& copy : copies) {
    if (copy.size > 0) {
      from_.push_back(copy.from);
      to_.push_back(copy.to);
      sizes_.push_back(copy.size);
    }
  }
}

void CopyList::Join(std::span<const GpuCopy> copies) {
  Assign(copies);
  std::size_t kept = 0;  // the last one that stays
  for (std::size_t i = 1; i < sizes_.size(); ++i) {
    const bool touches = static_cast<const std::byte*>(from_[kept]) + sizes_[kept] == from_[i] &&
                         static_cast<std::byte*>(to_[kept]) + sizes_[kept] == to_[i];
    if (touches) {
      sizes_[kept] += sizes_[i];
      continue;
    }
    ++kept;
    from_[kept] = from_[i];
    to_[kept] = to_[i];
    sizes_[kept] = sizes_[i];
  }
  if (!sizes_.empty()) {
    from_.resize(kept + 1);
    to_.resize(kept + 1);
    sizes_.resize(kept + 1);
  }
}

cudaError_t CopyList::Enqueue(cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  if (sizes_.size() > 1) {
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    return cudaMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), sizes_.size(), &attributes, &first, 1, stream);
  }
#endif
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (const cudaError_t error = cudaMemcpyAsync(to_[i], from_[i], sizes_[i], cudaMemcpyDefault, stream);
        error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

}  // namespace refit::device
