// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernel of GpuQueue::Hash, for queue.cc.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace refit::device::gpu_hash {

inline constexpr std::uint32_t kTileBytes = 32 * 1024;

// One part in the table that the kernel reads.
struct TableEntry {
  const std::byte* bytes = nullptr;
  std::uint64_t size = 0;
  std::uint32_t first_word = 0;  // of the part in its tensor, mod 2^32
  std::uint32_t padded = 0;      // the tensor's size, rounded up to 4, mod 2^32
  std::uint32_t first_tile = 0;  // of the part, counted over all parts
};

// How many blocks fill the current GPU. Loads the kernel too, so that the first hash is as quick as the others.
cudaError_t CountBlocks(int& blocks);

// Adds each part's tiles to sums[part]. table has part_count entries, in order of first_tile, and one more whose
// first_tile is tile_count > 0. Everything lies in memory of the stream's GPU.
cudaError_t Launch(const TableEntry* table, std::uint32_t part_count, std::uint32_t tile_count, std::uint64_t* sums,
                   int blocks, cudaStream_t stream);

}  // namespace refit::device::gpu_hash
