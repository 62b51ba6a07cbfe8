// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One warp hashes one tile of 32 KiB after the other, so that 18,000 small tensors and one large one go equally fast.
// Integer arithmetic is the limit (about 25 instructions a word), not memory.

#include <algorithm>

#include "refit/device/cuda/hash_kernel.h"
#include "refit/device/gpu_hash_words.h"

namespace refit::device::gpu_hash {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kLanes = 32;
constexpr unsigned kWarps = kThreads / kLanes;
constexpr unsigned kLoads = 8;  // of 16 bytes, in flight per thread
constexpr unsigned kAllLanes = 0xFFFFFFFF;

struct Sums {
  std::uint32_t first = 0;
  std::uint32_t second = 0;

  __device__ void Add(std::uint32_t value, std::uint32_t index) {
    first += First(value, index);
    second += Second(value, index);
  }
  __device__ void Add(uint4 quad, std::uint32_t index) {
    Add(quad.x, index);
    Add(quad.y, index + 1);
    Add(quad.z, index + 2);
    Add(quad.w, index + 3);
  }
};

// Up to 4 bytes at any address, little endian, the rest 0.
__device__ std::uint32_t Gather(const unsigned char* at, unsigned count) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < count; ++i) {
    value |= static_cast<std::uint32_t>(at[i]) << (8 * i);
  }
  return value;
}

// This lane's share of a tile. word: the tile's first one in its tensor.
__device__ Sums AddLane(const unsigned char* bytes, std::uint32_t size, std::uint32_t word, unsigned lane) {
  Sums sums;
  const std::uint32_t words = size / 4;
  std::uint32_t done = 0;
  const auto address = reinterpret_cast<std::uintptr_t>(bytes);
  if (address % 16 == 0) {
    const auto* quads = reinterpret_cast<const uint4*>(bytes);
    const std::uint32_t count = words / 4;
    std::uint32_t at = lane;
    for (std::uint32_t left = count; left >= kLoads * kLanes; left -= kLoads * kLanes) {
      uint4 loaded[kLoads];
#pragma unroll
      for (unsigned i = 0; i < kLoads; ++i) {
        loaded[i] = __ldcs(quads + at + i * kLanes);
      }
#pragma unroll
      for (unsigned i = 0; i < kLoads; ++i) {
        sums.Add(loaded[i], word + 4 * (at + i * kLanes));
      }
      at += kLoads * kLanes;
    }
    for (; at < count; at += kLanes) {
      sums.Add(__ldcs(quads + at), word + 4 * at);
    }
    done = 4 * count;
  }
  if (address % 4 == 0) {
    const auto* single = reinterpret_cast<const std::uint32_t*>(bytes);
#pragma unroll 4
    for (std::uint32_t at = done + lane; at < words; at += kLanes) {
      sums.Add(__ldcs(single + at), word + at);
    }
  } else {
    for (std::uint32_t at = lane; at < words; at += kLanes) {
      sums.Add(Gather(bytes + 4 * at, 4), word + at);
    }
  }
  if (lane == 0 && size % 4 != 0) {
    sums.Add(Gather(bytes + 4 * words, size % 4), word + words);
  }
  return sums;
}

// Each warp takes an equal share of all tiles, neighbours together: it looks for its first part once.
__global__ __launch_bounds__(kThreads) void HashTiles(const TableEntry* __restrict__ table, std::uint32_t part_count,
                                                      std::uint32_t tile_count, std::uint64_t* __restrict__ sums) {
  const unsigned lane = threadIdx.x % kLanes;
  const std::uint64_t warp = blockIdx.x * kWarps + threadIdx.x / kLanes;
  const std::uint64_t warps = gridDim.x * kWarps;
  auto tile = static_cast<std::uint32_t>(tile_count * warp / warps);
  const auto end = static_cast<std::uint32_t>(tile_count * (warp + 1) / warps);
  if (tile >= end) {
    return;
  }
  std::uint32_t part = 0;
  for (std::uint32_t beyond = part_count; beyond - part > 1;) {
    const std::uint32_t middle = part + (beyond - part) / 2;
    if (table[middle].first_tile <= tile) {
      part = middle;
    } else {
      beyond = middle;
    }
  }
  for (; tile < end; ++tile) {
    while (table[part + 1].first_tile <= tile) {
      ++part;
    }
    const TableEntry& entry = table[part];
    const std::uint32_t number = tile - entry.first_tile;
    const std::uint64_t offset = static_cast<std::uint64_t>(number) * kTileBytes;
    const auto size = static_cast<std::uint32_t>(min(static_cast<std::uint64_t>(kTileBytes), entry.size - offset));
    const Sums mine = AddLane(reinterpret_cast<const unsigned char*>(entry.bytes) + offset, size,
                              entry.first_word + number * (kTileBytes / 4), lane);
    const std::uint32_t first = __reduce_add_sync(kAllLanes, mine.first);
    const std::uint32_t second = __reduce_add_sync(kAllLanes, mine.second);
    if (lane == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(sums + part), Tile(first, second, entry.padded));
    }
  }
}

}  // namespace

cudaError_t CountBlocks(int& blocks) {
  int gpu = 0;
  int processors = 0;
  int per_processor = 0;
  cudaError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, HashTiles, kThreads, 0);
  }
  blocks = processors * per_processor;
  return error;
}

cudaError_t Launch(const TableEntry* table, std::uint32_t part_count, std::uint32_t tile_count, std::uint64_t* sums,
                   int blocks, cudaStream_t stream) {
  const auto needed = static_cast<unsigned>((tile_count + std::uint64_t{kWarps} - 1) / kWarps);
  void* arguments[] = {&table, &part_count, &tile_count, &sums};
  return cudaLaunchKernel(HashTiles, dim3(std::min(needed, static_cast<unsigned>(blocks))), dim3(kThreads), arguments,
                          0, stream);
}

}  // namespace refit::device::gpu_hash
