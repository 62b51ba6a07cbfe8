// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What refit does with GPUs: own memory that can be exported, open a peer's, copy and hash on a stream. Made by
// device/cuda/ where CUDA's compiler is there; elsewhere by device/cuda_absent.cc, where everything is UNIMPLEMENTED. A
// build with CUDA starts without a driver too: then everything is UNAVAILABLE.
//
// No call blocks on the GPU but those that take a deadline, and Allocate, Open and destructors (the driver may wait for
// running work there). An error of the device itself (illegal address, ECC) is INTERNAL: the process can use no GPU any
// more and must end.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/memory.h"

namespace refit::device {

bool BuiltWithCuda();

struct Gpu {
  GpuOrdinal ordinal = 0;
  std::string uuid;  // lower case 8-4-4-4-12, no "GPU-": as torch and SGLang want it
  std::string name;  // "NVIDIA H200"
  ByteCount memory_bytes = 0;
};
// Those that this process sees. UNAVAILABLE without a driver or a GPU.
Result<std::vector<Gpu>> ListGpus();
// NOT_FOUND names what there is.
Result<Gpu> FindGpu(GpuOrdinal ordinal);

// How a peer process names GPU memory of ours: a CUDA IPC handle covers a whole allocation.
struct GpuExport {
  std::string gpu_uuid;
  std::string handle;             // 64 bytes, the same for the life of the allocation
  ByteCount allocation_size = 0;  // of the whole allocation
  ByteCount offset = 0;           // of the memory in it
};
// INVALID_ARGUMENT for memory that CUDA cannot export (cudaMallocAsync, managed, virtual-memory segments such as
// torch's expandable ones), with the remedy: copy it into a GpuArena.
Result<GpuExport> ExportGpuMemory(const Memory& memory);

// One cudaMalloc: exportable, never moved. Peers must have closed it, or be dead, before it goes (CUDA: undefined
// else).
class GpuArena {
 public:
  // RESOURCE_EXHAUSTED names the GPU, what was asked for and what is free.
  static Result<std::unique_ptr<GpuArena>> Allocate(GpuOrdinal gpu, ByteCount size);
  virtual ~GpuArena() = default;
  virtual Memory memory() const = 0;
};

// Host memory that a GPU copies from and to at full speed (page-locked).
class PinnedMemory {
 public:
  static Result<std::unique_ptr<PinnedMemory>> Allocate(ByteCount size);
  virtual ~PinnedMemory() = default;
  virtual Memory memory() const = 0;
};

// A peer's allocation, mapped for one of our GPUs. Opened once per handle and kept: opening costs 0.1 to 10 ms.
class GpuMapping {
 public:
  // `gpu` reads it; FAILED_PRECONDITION where it has no peer access to the exporter's GPU, INVALID_ARGUMENT for a
  // handle of this process or one that names nothing. The whole allocation; memory() is on `gpu`'s address space.
  static Result<std::unique_ptr<GpuMapping>> Open(GpuOrdinal gpu, const GpuExport& exported);
  virtual ~GpuMapping() = default;
  virtual Memory memory() const = 0;
};

struct GpuCopy {
  const std::byte* from = nullptr;  // host or any GPU that this one reaches
  std::byte* to = nullptr;
  ByteCount size = 0;
};

// A part of a tensor to hash as SGLang's GPU server does (device/gpu_hash.h). Hashes of parts add up where every part
// but the last is a multiple of kGpuHashTile.
struct GpuHashPart {
  const std::byte* bytes = nullptr;  // on the queue's GPU, or mapped for it; fastest where 16-byte aligned
  ByteCount size = 0;
  ByteCount offset = 0;  // of the part in the tensor, a multiple of kGpuHashTile
  ByteCount total = 0;   // bytes of the whole tensor
};

// A point in a queue: reached when everything queued before it is done.
using GpuTicket = std::uint64_t;

// One CUDA stream of one GPU. Thread: one at a time.
class GpuQueue {
 public:
  static Result<std::unique_ptr<GpuQueue>> Make(GpuOrdinal gpu);
  virtual ~GpuQueue() = default;  // waits for what is queued

  // All of them as one batch; they run in any order among themselves.
  virtual Status Copy(std::span<const GpuCopy> copies) = 0;
  // sums[i] gets parts[i]'s sum when Reached or Wait says that a ticket after it is reached (device/gpu_hash.h makes a
  // hash of sums). `sums` must live until then, or until the queue goes; it need not be page-locked.
  virtual Status Hash(std::span<const GpuHashPart> parts, std::span<std::uint64_t> sums) = 0;
  virtual Result<GpuTicket> Mark() = 0;
  // What is queued here from now on runs after `ticket` of `other` (of any GPU).
  virtual Status After(GpuQueue& other, GpuTicket ticket) = 0;
  virtual Result<bool> Reached(GpuTicket ticket) = 0;
  virtual Status Wait(GpuTicket ticket, Instant deadline) = 0;  // DEADLINE_EXCEEDED: it may still run
};

}  // namespace refit::device
