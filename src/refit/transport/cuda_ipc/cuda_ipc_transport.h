// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Two processes of one host, GPU memory to GPU memory: the reader opens the exporter's allocation once and copies from
// it with its GPU's copy engines, over NVLink where there is one. Both must see the same /dev/shm, and containers need
// one IPC namespace.
//
// The exporter keeps what it exported until its readers have let go or are dead: CUDA takes nothing back.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "refit/transport/cuda_ipc/export_table.h"
#include "refit/transport/transport.h"

namespace refit::transport {

class CudaIpcTransport final : public Transport {
 public:
  // UNIMPLEMENTED in a build without CUDA, UNAVAILABLE without a GPU.
  static Result<std::unique_ptr<CudaIpcTransport>> Create();

  std::string_view name() const override { return "cuda_ipc"; }
  bool can_map_in_place() const override { return true; }
  // GPU memory that cudaMalloc gave (device::GpuArena), or a part of it.
  Result<Descriptor> Export(device::Memory memory) override;
  void Unexport(const Descriptor& descriptor) override;
  Result<std::unique_ptr<Link>> Bind(std::string_view peer_address, Instant deadline) override;
  std::string Address() const override;  // "cuda_ipc:<name of the export table>"

 private:
  explicit CudaIpcTransport(std::unique_ptr<ExportTable> exports) : exports_(std::move(exports)) {}

  std::mutex mutex_;  // of changes to exports_
  std::unique_ptr<ExportTable> exports_;
};

}  // namespace refit::transport
