// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/cuda/hash_buffer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "refit/device/gpu_hash.h"
#include "refit/device/gpu_hash_words.h"

namespace refit::device {
namespace {

using gpu_hash::TableEntry;

constexpr std::size_t kLeastParts = 1024;  // few sizes, so that buffers are used again

ByteCount SumsSize(std::size_t parts) { return parts * sizeof(std::uint64_t); }
ByteCount TotalSize(std::size_t parts) { return SumsSize(parts) + (parts + 1) * sizeof(TableEntry); }

static_assert(kGpuHashTile == gpu_hash::kTileBytes);
static_assert(alignof(TableEntry) == alignof(std::uint64_t));

}  // namespace

Result<HashBuffer> HashBuffer::Allocate(GpuOrdinal gpu, std::size_t part_count) {
  const std::size_t capacity = std::bit_ceil(std::max(part_count, kLeastParts));
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<PinnedMemory> host, PinnedMemory::Allocate(TotalSize(capacity)));
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<GpuArena> arena, GpuArena::Allocate(gpu, TotalSize(capacity)));
  return HashBuffer(std::move(host), std::move(arena), capacity);
}

void HashBuffer::Fill(std::span<const GpuHashPart> parts) {
  used_ = parts.size();
  std::byte* const base = host_->memory().bytes.data();
  std::fill_n(reinterpret_cast<std::uint64_t*>(base), used_, 0);
  auto* const table = reinterpret_cast<TableEntry*>(base + SumsSize(used_));
  std::uint32_t tile = 0;
  for (std::size_t i = 0; i < used_; ++i) {
    const GpuHashPart& part = parts[i];
    table[i] = {part.bytes, part.size, static_cast<std::uint32_t>(part.offset / 4), gpu_hash::Padded(part.total), tile};
    tile += static_cast<std::uint32_t>((part.size + kGpuHashTile - 1) / kGpuHashTile);
  }
  table[used_] = {nullptr, 0, 0, 0, tile};
}

cudaError_t HashBuffer::Upload(cudaStream_t stream) {
  return cudaMemcpyAsync(gpu_->memory().bytes.data(), host_->memory().bytes.data(), TotalSize(used_),
                         cudaMemcpyHostToDevice, stream);
}

cudaError_t HashBuffer::Download(cudaStream_t stream) {
  return cudaMemcpyAsync(host_->memory().bytes.data(), gpu_->memory().bytes.data(), SumsSize(used_),
                         cudaMemcpyDeviceToHost, stream);
}

const TableEntry* HashBuffer::table() const {
  return reinterpret_cast<const TableEntry*>(gpu_->memory().bytes.data() + SumsSize(used_));
}

std::uint64_t* HashBuffer::gpu_sums() const { return reinterpret_cast<std::uint64_t*>(gpu_->memory().bytes.data()); }

const std::uint64_t* HashBuffer::host_sums() const {
  return reinterpret_cast<const std::uint64_t*>(host_->memory().bytes.data());
}

}  // namespace refit::device
