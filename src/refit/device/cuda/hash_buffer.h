// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What one GpuQueue::Hash needs, page-locked and on the GPU: [sums][table, with its end].

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "refit/base/status.h"
#include "refit/device/cuda.h"
#include "refit/device/cuda/hash_kernel.h"

namespace refit::device {

class HashBuffer {
 public:
  static Result<HashBuffer> Allocate(GpuOrdinal gpu, std::size_t part_count);  // for as many at least

  std::size_t part_capacity() const { return capacity_; }
  void Fill(std::span<const GpuHashPart> parts);  // the host's side: zero sums, and the table
  cudaError_t Upload(cudaStream_t stream);
  cudaError_t Download(cudaStream_t stream);  // the sums

  const gpu_hash::TableEntry* table() const;  // on the GPU
  std::uint64_t* gpu_sums() const;
  const std::uint64_t* host_sums() const;

 private:
  HashBuffer(std::unique_ptr<PinnedMemory> host, std::unique_ptr<GpuArena> gpu, std::size_t capacity)
      : host_(std::move(host)), gpu_(std::move(gpu)), capacity_(capacity) {}

  std::unique_ptr<PinnedMemory> host_;
  std::unique_ptr<GpuArena> gpu_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;  // parts
};

}  // namespace refit::device
