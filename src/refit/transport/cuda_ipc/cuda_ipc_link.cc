// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/cuda_ipc/cuda_ipc_link.h"

#include <iterator>
#include <vector>

#include "refit/base/str.h"

namespace refit::transport {
namespace {

// The GPU that the memory is on where this process sees it, else the first one: it reads through peer access.
Result<device::GpuOrdinal> ReaderFor(const std::string& exporter) {
  REFIT_ASSIGN_OR_RETURN(const std::vector<device::Gpu> gpus, device::ListGpus());
  for (const device::Gpu& gpu : gpus) {
    if (gpu.uuid == exporter) {
      return gpu.ordinal;
    }
  }
  return gpus.front().ordinal;
}

}  // namespace

Result<CudaIpcMemory> CudaIpcLink::Look(const Descriptor& descriptor) const {
  if (closed_) {
    return Unavailable("the link is closed");
  }
  REFIT_ASSIGN_OR_RETURN(CudaIpcMemory memory, ParseCudaIpcDescriptor(descriptor));
  if (!peer_->Has(descriptor.text)) {
    return NotFound("the peer does not export that GPU memory, or no longer", "each link reads its own peer only");
  }
  return memory;
}

Result<device::Memory> CudaIpcLink::Map(const CudaIpcMemory& memory, device::GpuOrdinal reader) {
  auto& mapping = mapped_[{reader, memory.exported.handle}];
  if (mapping == nullptr) {
    REFIT_ASSIGN_OR_RETURN(mapping, device::GpuMapping::Open(reader, memory.exported));
  }
  const device::Memory whole = mapping->memory();
  if (memory.exported.offset + memory.size > whole.size()) {  // parsed: no overflow
    return InvalidArgument("the descriptor leaves the allocation that it names");
  }
  return whole.Part(memory.exported.offset, memory.size);
}

Result<device::GpuQueue*> CudaIpcLink::NextQueue(device::GpuOrdinal gpu) {
  Lane& lane = lanes_[gpu];
  auto& queue = lane.queues[lane.next];
  lane.next = (lane.next + 1) % lane.queues.size();
  if (queue == nullptr) {
    REFIT_ASSIGN_OR_RETURN(queue, device::GpuQueue::Make(gpu));
  }
  return queue.get();
}

Result<OpId> CudaIpcLink::Fetch(const Descriptor& descriptor, Range range, device::Memory into) {
  REFIT_ASSIGN_OR_RETURN(const CudaIpcMemory memory, Look(descriptor));
  REFIT_RETURN_IF_ERROR(CheckRange(range, memory.size, into));
  if (range.size == 0) {
    const OpId op = ops_.Start();
    ops_.End(op, OkStatus());
    return op;
  }
  device::GpuOrdinal reader = 0;
  if (into.gpu.has_value()) {
    reader = *into.gpu;
  } else {
    REFIT_ASSIGN_OR_RETURN(reader, ReaderFor(memory.exported.gpu_uuid));
  }
  REFIT_ASSIGN_OR_RETURN(const device::Memory source, Map(memory, reader));
  REFIT_ASSIGN_OR_RETURN(device::GpuQueue* const queue, NextQueue(reader));
  const device::GpuCopy copy{source.bytes.data() + range.offset, into.bytes.data(), range.size};
  REFIT_RETURN_IF_ERROR(queue->Copy({&copy, 1}));
  REFIT_ASSIGN_OR_RETURN(const device::GpuTicket ticket, queue->Mark());
  const OpId op = ops_.Start();
  running_.emplace(op, Running{queue, ticket});
  return op;
}

OpState CudaIpcLink::Poll(OpId op) {
  const auto running = running_.find(op);
  if (running != running_.end()) {
    const auto reached = running->second.queue->Reached(running->second.ticket);
    if (!reached.has_value() || *reached) {
      ops_.End(op, reached.status());
      running_.erase(running);
    }
  }
  return ops_.state(op);
}

// RX-ASM-T2. A queue runs in order: its last ticket is reached after all others.
FenceOutcome CudaIpcLink::Fence(Instant deadline) {
  while (!running_.empty()) {
    const auto last = std::prev(running_.end());
    const Status ended = last->second.queue->Wait(last->second.ticket, deadline);
    if (ended.code() == StatusCode::kDeadlineExceeded) {
      return FenceOutcome::kUnknown;
    }
    ops_.End(last->first, ended);
    running_.erase(last);
  }
  return FenceOutcome::kFenced;
}

Result<device::Memory> CudaIpcLink::MapInPlace(const Descriptor& descriptor) {
  REFIT_ASSIGN_OR_RETURN(const CudaIpcMemory memory, Look(descriptor));
  REFIT_ASSIGN_OR_RETURN(const device::GpuOrdinal reader, ReaderFor(memory.exported.gpu_uuid));
  return Map(memory, reader);
}

}  // namespace refit::transport
