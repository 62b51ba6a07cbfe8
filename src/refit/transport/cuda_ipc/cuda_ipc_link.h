// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "refit/device/cuda.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"
#include "refit/transport/cuda_ipc/export_table.h"
#include "refit/transport/op_table.h"
#include "refit/transport/transport.h"

namespace refit::transport {

class CudaIpcLink final : public Link {
 public:
  explicit CudaIpcLink(std::unique_ptr<ExportTable> peer) : peer_(std::move(peer)) {}

  Result<OpId> Fetch(const Descriptor& descriptor, Range range, device::Memory into) override;
  OpState Poll(OpId op) override;
  Status error(OpId op) const override { return ops_.error(op); }
  FenceOutcome Fence(Instant deadline) override;
  Result<device::Memory> MapInPlace(const Descriptor& descriptor) override;
  // What runs on a GPU cannot be called back: it still ends, and its operations with it.
  void Close() override { closed_ = true; }

 private:
  // Two queues per GPU in turn, so that one copy's start hides behind the other's bytes.
  struct Lane {
    std::array<std::unique_ptr<device::GpuQueue>, 2> queues;
    std::size_t next = 0;
  };
  struct Running {
    device::GpuQueue* queue = nullptr;
    device::GpuTicket ticket = 0;
  };
  using MappingKey = std::pair<device::GpuOrdinal, std::string>;  // who reads, and the handle

  Result<CudaIpcMemory> Look(const Descriptor& descriptor) const;  // only what the peer exports now
  Result<device::Memory> Map(const CudaIpcMemory& memory, device::GpuOrdinal reader);
  Result<device::GpuQueue*> NextQueue(device::GpuOrdinal gpu);
  void Finish(OpId op, Status status);

  const std::unique_ptr<ExportTable> peer_;
  std::atomic<bool> closed_ = false;
  OpTable ops_;
  std::map<MappingKey, std::unique_ptr<device::GpuMapping>> mapped_;  // outlive lanes_, whose destructors wait
  std::map<device::GpuOrdinal, Lane> lanes_;
  std::map<OpId, Running> running_;
};

}  // namespace refit::transport
