// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What device/cuda and cuda_ipc reach on this machine, each beside a plain cudaMemcpy of the same bytes, as one JSON
// object on stdout. Medians of 9 after 2; gigabytes of 1e9 per second.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/exec/clock.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"
#include "refit/transport/cuda_ipc/cuda_ipc_transport.h"
#include "tests/gpu/exporter_process.h"

namespace refit {
namespace {

constexpr int kWarmUps = 2;
constexpr int kRounds = 9;
constexpr ByteCount kModel = 1'503'264'768;  // 311 tensors, as settled D11's shape has
constexpr std::size_t kTensors = 311;
constexpr ByteCount kPiece = 64 * kMiB;

Instant Soon() { return exec::Now() + std::chrono::seconds(30); }

Result<double> MedianSeconds(const std::function<Status()>& run) {
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + kRounds; ++i) {
    const Instant begin = exec::Now();
    REFIT_RETURN_IF_ERROR(run());
    if (i >= kWarmUps) {
      seconds.push_back(std::chrono::duration<double>(exec::Now() - begin).count());
    }
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

class Report {
 public:
  Status Add(const std::string& name, ByteCount bytes, const std::function<Status()>& run) {
    const auto seconds = MedianSeconds(run);
    if (!seconds.has_value()) {
      return seconds.status().WithContext(name);
    }
    std::string line(256, '\0');
    const int size =
        std::snprintf(line.data(), line.size(), R"("%s": {"bytes": %llu, "seconds": %.6f, "gbps": %.1f})", name.c_str(),
                      static_cast<unsigned long long>(bytes), *seconds, static_cast<double>(bytes) / *seconds / 1e9);
    line.resize(static_cast<std::size_t>(size));
    lines_ += StrCat(lines_.empty() ? "" : ",\n  ", line);
    return OkStatus();
  }
  void Print() const { std::printf("{%s}\n", lines_.c_str()); }

 private:
  std::string lines_;
};

Status Finish(device::GpuQueue& queue) {
  REFIT_ASSIGN_OR_RETURN(const device::GpuTicket ticket, queue.Mark());
  return queue.Wait(ticket, Soon());
}

Status CopyAll(device::GpuQueue& queue, std::span<const device::GpuCopy> copies) {
  REFIT_RETURN_IF_ERROR(queue.Copy(copies));
  return Finish(queue);
}

Status HashAll(device::GpuQueue& queue, std::span<const device::GpuHashPart> parts, std::span<std::uint64_t> sums) {
  REFIT_RETURN_IF_ERROR(queue.Hash(parts, sums));
  return Finish(queue);
}

Status PlainCopy(std::byte* to, const std::byte* from, ByteCount size) {
  if (cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, nullptr) != cudaSuccess ||
      cudaStreamSynchronize(nullptr) != cudaSuccess) {
    return Internal(StrCat("cudaMemcpy: ", cudaGetErrorString(cudaGetLastError())));
  }
  return OkStatus();
}

// Tensors of about the model's sizes: most of a few MB, two of 300 MB.
std::vector<ByteCount> TensorSizes() {
  std::vector<ByteCount> sizes(kTensors);
  ByteCount left = kModel;
  for (std::size_t i = 0; i < kTensors; ++i) {
    sizes[i] = i < 2 ? 311'164'928 : i + 1 == kTensors ? left : i % 3 == 0 ? 2048 : 4'194'304 + 1024 * (i % 5);
    left -= sizes[i];
  }
  return sizes;
}

Status OnOneGpu(Report& report) {
  REFIT_ASSIGN_OR_RETURN(const auto queue, device::GpuQueue::Make(0));
  REFIT_ASSIGN_OR_RETURN(const auto from, device::GpuArena::Allocate(0, kModel + kTensors * 256));
  REFIT_ASSIGN_OR_RETURN(const auto to, device::GpuArena::Allocate(0, kModel + kTensors * 256));
  std::byte* const source = from->memory().bytes.data();
  std::byte* const target = to->memory().bytes.data();
  std::vector<device::GpuCopy> copies;
  std::vector<device::GpuHashPart> parts;
  ByteCount at = 0;
  for (const ByteCount size : TensorSizes()) {
    copies.push_back({source + at, target + at, size});
    parts.push_back({source + at, size, 0, size});
    at += RoundUp(size + 1, 256);  // never neighbours: as many copies as tensors
  }
  std::vector<std::uint64_t> sums(parts.size());
  REFIT_RETURN_IF_ERROR(report.Add("same_gpu_memcpy", kModel, [&] { return PlainCopy(target, source, kModel); }));
  REFIT_RETURN_IF_ERROR(report.Add("same_gpu_batch_of_311", kModel, [&] { return CopyAll(*queue, copies); }));
  REFIT_RETURN_IF_ERROR(report.Add("hash_of_311", kModel, [&] { return HashAll(*queue, parts, sums); }));
  const device::GpuHashPart piece{source, kPiece, 0, kPiece};
  REFIT_RETURN_IF_ERROR(
      report.Add("hash_of_64_mib", kPiece, [&] { return HashAll(*queue, {&piece, 1}, std::span(sums).first(1)); }));
  std::vector<device::GpuHashPart> experts;
  for (std::size_t i = 0; i < 18'432; ++i) {
    experts.push_back({source + i * 65'536, 65'536, 0, 65'536});
  }
  std::vector<std::uint64_t> expert_sums(experts.size());
  return report.Add("hash_of_18432_experts", experts.size() * 65'536,
                    [&] { return HashAll(*queue, experts, expert_sums); });
}

// All pieces of the model, `depth` of them under way at a time.
Status FetchAll(transport::Link& link, const transport::Descriptor& descriptor, const device::Memory& into,
                ByteCount piece, std::size_t depth) {
  std::deque<transport::OpId> running;
  const auto end_first = [&]() -> Status {
    transport::OpState state = transport::OpState::kPending;
    const Instant deadline = Soon();
    while ((state = link.Poll(running.front())) == transport::OpState::kPending) {
      if (exec::Now() > deadline) {
        return DeadlineExceeded("a fetch did not end");
      }
    }
    REFIT_RETURN_IF_ERROR(link.error(running.front()));
    running.pop_front();
    return OkStatus();
  };
  for (ByteCount at = 0; at < into.size(); at += piece) {
    const ByteCount size = std::min(piece, into.size() - at);
    if (running.size() == depth) {
      REFIT_RETURN_IF_ERROR(end_first());
    }
    REFIT_ASSIGN_OR_RETURN(const transport::OpId op, link.Fetch(descriptor, {at, size}, into.Part(at, size)));
    running.push_back(op);
  }
  while (!running.empty()) {
    REFIT_RETURN_IF_ERROR(end_first());
  }
  return OkStatus();
}

Status BetweenProcesses(Report& report, gpu_test::ExporterProcess& exporter, device::GpuOrdinal from) {
  const std::string name = from == 0 ? "cuda_ipc_same_gpu" : "cuda_ipc_two_gpus";
  REFIT_ASSIGN_OR_RETURN(const std::uint64_t number, exporter.Allocate(from, kModel));
  REFIT_ASSIGN_OR_RETURN(const transport::Descriptor descriptor, exporter.Export(number, 0, kModel));
  REFIT_ASSIGN_OR_RETURN(const std::string address, exporter.Address());
  REFIT_ASSIGN_OR_RETURN(const auto transport, transport::CudaIpcTransport::Create());
  REFIT_ASSIGN_OR_RETURN(const auto link, transport->Bind(address, Soon()));
  REFIT_ASSIGN_OR_RETURN(const auto landing, device::GpuArena::Allocate(0, kModel));
  const device::Memory into = landing->memory();
  const device::Memory first = into.Part(0, kPiece);
  REFIT_RETURN_IF_ERROR(
      report.Add(name + "_one_fetch_of_64_mib", kPiece, [&] { return FetchAll(*link, descriptor, first, kPiece, 1); }));
  REFIT_RETURN_IF_ERROR(
      report.Add(name + "_pieces_of_64_mib", kModel, [&] { return FetchAll(*link, descriptor, into, kPiece, 4); }));
  REFIT_RETURN_IF_ERROR(
      report.Add(name + "_pieces_of_4_mib", kModel, [&] { return FetchAll(*link, descriptor, into, 4 * kMiB, 16); }));
  REFIT_RETURN_IF_ERROR(
      report.Add(name + "_whole", kModel, [&] { return FetchAll(*link, descriptor, into, kModel, 1); }));
  REFIT_ASSIGN_OR_RETURN(const transport::CudaIpcMemory named, transport::ParseCudaIpcDescriptor(descriptor));
  REFIT_ASSIGN_OR_RETURN(const auto mapping, device::GpuMapping::Open(0, named.exported));
  const std::byte* const mapped = mapping->memory().bytes.data() + named.exported.offset;
  if (cudaSetDevice(0) != cudaSuccess) {
    return Internal("GPU 0 went away");
  }
  REFIT_RETURN_IF_ERROR(
      report.Add(name + "_memcpy_of_64_mib", kPiece, [&] { return PlainCopy(into.bytes.data(), mapped, kPiece); }));
  return report.Add(name + "_memcpy_whole", kModel, [&] { return PlainCopy(into.bytes.data(), mapped, kModel); });
}

Status Run(gpu_test::ExporterProcess& exporter) {
  REFIT_ASSIGN_OR_RETURN(const std::vector<device::Gpu> gpus, device::ListGpus());
  Report report;
  REFIT_RETURN_IF_ERROR(OnOneGpu(report));
  REFIT_RETURN_IF_ERROR(BetweenProcesses(report, exporter, 0));
  if (gpus.size() > 1) {
    REFIT_RETURN_IF_ERROR(BetweenProcesses(report, exporter, 1));
  }
  report.Print();
  return OkStatus();
}

}  // namespace
}  // namespace refit

int main() {
  refit::gpu_test::ExporterProcess exporter("cuda_ipc");  // before anything here touches CUDA
  const refit::Status status = refit::Run(exporter);
  if (!status.ok()) {
    std::fprintf(stderr, "gpu-bench: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
