// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A process of its own that holds GPU memory and exports it, since CUDA opens no handle in the process that made it.
// It is forked before the test program has touched CUDA or NIXL: after that a fork has no GPU any more.

#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/device/memory.h"
#include "refit/transport/transport.h"

namespace refit::gpu_test {

// Waits until the copy is done. Host memory or that of any GPU that `gpu` reaches.
Status CopyNow(device::GpuOrdinal gpu, const std::byte* from, std::byte* to, ByteCount size);

// "cuda_ipc" or "nixl", whose library the environment variable REFIT_NIXL names.
Result<std::unique_ptr<transport::Transport>> MakeTransport(std::string_view name);

class ExporterProcess {
 public:
  explicit ExporterProcess(std::string_view transport);  // forks
  ~ExporterProcess();                                    // kills
  ExporterProcess(const ExporterProcess&) = delete;
  ExporterProcess& operator=(const ExporterProcess&) = delete;

  // Host memory that both processes have at the same address: what Upload reads and Download writes.
  MutableBytes shared() const { return shared_; }

  Result<std::uint64_t> Allocate(device::GpuOrdinal gpu, ByteCount size);  // a number for the memory
  Status Free(std::uint64_t number);  // over NIXL only when the process ends: its UCX keeps mappings open
  Status Upload(std::uint64_t number, Bytes from_shared);  // from the begin on
  Status Download(std::uint64_t number, MutableBytes into_shared);
  Result<transport::Descriptor> Export(std::uint64_t number, ByteCount offset, ByteCount size);
  Result<transport::Descriptor> ExportShared();
  Status Unexport(const transport::Descriptor& descriptor);
  Result<std::string> Address();
  void Kill();  // and waits until it is gone

 private:
  struct Message {
    char what = 0;
    std::int32_t code = 0;  // of a reply
    std::int32_t gpu = 0;
    std::uint64_t number = 0;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t address = 0;         // in shared_
    std::array<char, 1 << 16> text{};  // an address of NIXL is long
  };
  class Server;

  Result<Message> Ask(Message message);

  MutableBytes shared_;
  pid_t pid_ = 0;
  int socket_ = -1;
};

// Those that every test uses, two for each transport, forked before the first test (a test environment).
ExporterProcess& Exporter(std::string_view transport);
ExporterProcess& OtherExporter(std::string_view transport);
// The other end of the transport, in this process: over NIXL one for all tests, as a rank has one.
Result<std::shared_ptr<transport::Transport>> Reader(std::string_view transport);
// Why the tests of a transport cannot run here; empty where they can.
std::string WhyNot(std::string_view transport, std::size_t gpus_needed);
std::string WhyNoGpus(std::size_t needed);

}  // namespace refit::gpu_test
