// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "refit/base/check.h"
#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/device/cuda/copy_list.h"
#include "refit/device/cuda/cuda_status.h"
#include "refit/device/cuda/hash_buffer.h"
#include "refit/device/cuda/hash_kernel.h"
#include "refit/device/gpu_hash.h"
#include "refit/exec/clock.h"

namespace refit::device {
namespace {

constexpr Duration kSpell = std::chrono::microseconds(200);  // of waiting: exec's naps get long after that

class CudaQueue final : public GpuQueue {
 public:
  CudaQueue(GpuOrdinal gpu, cudaStream_t stream, int hash_blocks)
      : gpu_(gpu), stream_(stream), hash_blocks_(hash_blocks) {}
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  ~CudaQueue() override {
    UseGpu(gpu_).ok();  // on failure the calls below fail too, and there is nobody to tell
    cudaStreamSynchronize(stream_);
    for (cudaEvent_t event : marks_) {
      cudaEventDestroy(event);
    }
    for (cudaEvent_t event : idle_events_) {
      cudaEventDestroy(event);
    }
    cudaStreamDestroy(stream_);
  }

  Status Copy(std::span<const GpuCopy> copies) override {
    REFIT_RETURN_IF_ERROR(UseGpu(gpu_));
    copies_.Join(copies);
    cudaError_t error = copies_.Enqueue(stream_);
    if (error == cudaErrorInvalidValue && copies_.size() < copies.size()) {
      cudaGetLastError();  // neighbours in two allocations: CUDA copies within one only
      copies_.Assign(copies);
      error = copies_.Enqueue(stream_);
    }
    return FromCuda(error, StrCat("copying ", copies.size(), " pieces on GPU ", gpu_));
  }

  Status Hash(std::span<const GpuHashPart> parts, std::span<std::uint64_t> sums) override;

  Result<GpuTicket> Mark() override {
    REFIT_RETURN_IF_ERROR(UseGpu(gpu_));
    cudaEvent_t event = nullptr;
    if (idle_events_.empty()) {
      REFIT_RETURN_IF_ERROR(
          FromCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), StrCat("making an event on GPU ", gpu_)));
    } else {
      event = idle_events_.back();
      idle_events_.pop_back();
    }
    if (const cudaError_t error = cudaEventRecord(event, stream_); error != cudaSuccess) {
      idle_events_.push_back(event);
      return FromCuda(error, StrCat("marking on GPU ", gpu_));
    }
    marks_.push_back(event);
    return reached_ + marks_.size();
  }

  Status After(GpuQueue& other, GpuTicket ticket) override {
    auto& queue = static_cast<CudaQueue&>(other);  // there is no other kind in a build with CUDA
    REFIT_RETURN_IF_ERROR(queue.CheckTicket(ticket));
    if (ticket <= queue.reached_) {
      return OkStatus();
    }
    REFIT_RETURN_IF_ERROR(UseGpu(gpu_));
    return FromCuda(cudaStreamWaitEvent(stream_, queue.EventOf(ticket), 0),
                    StrCat("ordering GPU ", gpu_, " after GPU ", queue.gpu_));
  }

  Result<bool> Reached(GpuTicket ticket) override {
    REFIT_RETURN_IF_ERROR(CheckTicket(ticket));
    if (ticket <= reached_) {
      return true;
    }
    const cudaError_t error = cudaEventQuery(EventOf(ticket));
    if (error == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    REFIT_RETURN_IF_ERROR(FromCuda(error, StrCat("running what was queued on GPU ", gpu_)));
    Settle(ticket);
    return true;
  }

  Status Wait(GpuTicket ticket, Instant deadline) override {
    Result<bool> reached = false;
    const auto look = [&] {
      reached = Reached(ticket);
      return !reached.has_value() || *reached;
    };
    while (!exec::WaitUntil(look, std::min(deadline, exec::Now() + kSpell))) {
      if (exec::Now() >= deadline) {
        return DeadlineExceeded(StrCat("GPU ", gpu_, " did not finish what was queued in time"),
                                "look at nvidia-smi: something else may keep it busy");
      }
    }
    return reached.status();
  }

 private:
  struct Hashing {
    HashBuffer buffer;
    std::span<std::uint64_t> sums;  // the caller's; none when the hash was not queued
    GpuTicket ticket = 0;           // the mark after it
  };

  Status CheckTicket(GpuTicket ticket) const {
    if (ticket == 0 || ticket > reached_ + marks_.size()) {
      return InvalidArgument(StrCat("ticket ", ticket, " is not of this queue"));
    }
    return OkStatus();
  }
  cudaEvent_t EventOf(GpuTicket ticket) const { return marks_[ticket - reached_ - 1]; }  // not yet reached

  // Everything up to the ticket is done: its events and buffers are free, its sums are there.
  void Settle(GpuTicket ticket) {
    for (; reached_ < ticket; ++reached_) {
      idle_events_.push_back(marks_.front());
      marks_.pop_front();
    }
    while (!hashing_.empty() && hashing_.front().ticket <= reached_) {
      Hashing& done = hashing_.front();
      std::copy_n(done.buffer.host_sums(), done.sums.size(), done.sums.begin());
      idle_buffers_.push_back(std::move(done.buffer));
      hashing_.pop_front();
    }
  }

  Result<HashBuffer> TakeBuffer(std::size_t part_count) {
    const auto fits = [&](const HashBuffer& buffer) { return buffer.part_capacity() >= part_count; };
    const auto found = std::find_if(idle_buffers_.begin(), idle_buffers_.end(), fits);
    if (found == idle_buffers_.end()) {
      return HashBuffer::Allocate(gpu_, part_count);
    }
    HashBuffer buffer = std::move(*found);
    idle_buffers_.erase(found);
    return buffer;
  }

  const GpuOrdinal gpu_;
  const cudaStream_t stream_;
  const int hash_blocks_;
  CopyList copies_;
  GpuTicket reached_ = 0;          // all tickets up to it
  std::deque<cudaEvent_t> marks_;  // of the tickets after it, in order
  std::vector<cudaEvent_t> idle_events_;
  std::deque<Hashing> hashing_;
  std::vector<HashBuffer> idle_buffers_;
};

Status CudaQueue::Hash(std::span<const GpuHashPart> parts, std::span<std::uint64_t> sums) {
  REFIT_CHECK(parts.size() == sums.size(), "a sum for each part");
  std::uint64_t tiles = 0;
  for (const GpuHashPart& part : parts) {
    const std::optional<ByteCount> end = CheckedAdd(part.offset, part.size);
    if (part.offset % kGpuHashTile != 0 || !end || *end > part.total ||
        (part.size % kGpuHashTile != 0 && *end != part.total)) {
      return InvalidArgument(StrCat("a part of ", part.size, " bytes at ", part.offset, " of a tensor of ", part.total),
                             "cut tensors at multiples of 32 KiB");
    }
    tiles += (part.size + kGpuHashTile - 1) / kGpuHashTile;
  }
  if (tiles == 0) {
    std::fill(sums.begin(), sums.end(), 0);
    return OkStatus();
  }
  REFIT_CHECK(tiles < std::numeric_limits<std::uint32_t>::max(), "128 TiB are no GPU's");
  REFIT_RETURN_IF_ERROR(UseGpu(gpu_));
  if (!marks_.empty()) {
    REFIT_RETURN_IF_ERROR(Reached(reached_ + 1).status());  // frees the oldest buffer, perhaps
  }
  REFIT_ASSIGN_OR_RETURN(HashBuffer taken, TakeBuffer(parts.size()));
  // Kept until the next mark, whatever happens below: the stream may read it by then.
  hashing_.push_back({std::move(taken), {}, reached_ + marks_.size() + 1});
  HashBuffer& buffer = hashing_.back().buffer;
  buffer.Fill(parts);
  const std::string what = StrCat("hashing ", parts.size(), " parts on GPU ", gpu_);
  REFIT_RETURN_IF_ERROR(FromCuda(buffer.Upload(stream_), what));
  REFIT_RETURN_IF_ERROR(
      FromCuda(gpu_hash::Launch(buffer.table(), static_cast<std::uint32_t>(parts.size()),
                                static_cast<std::uint32_t>(tiles), buffer.gpu_sums(), hash_blocks_, stream_),
               what));
  REFIT_RETURN_IF_ERROR(FromCuda(buffer.Download(stream_), what));
  hashing_.back().sums = sums;
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<GpuQueue>> GpuQueue::Make(GpuOrdinal gpu) {
  REFIT_RETURN_IF_ERROR(FindGpu(gpu).status());
  REFIT_RETURN_IF_ERROR(UseGpu(gpu));
  int hash_blocks = 0;
  REFIT_RETURN_IF_ERROR(FromCuda(gpu_hash::CountBlocks(hash_blocks), StrCat("loading the hash kernel on GPU ", gpu)));
  cudaStream_t stream = nullptr;
  REFIT_RETURN_IF_ERROR(
      FromCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), StrCat("making a stream on GPU ", gpu)));
  return std::unique_ptr<GpuQueue>(std::make_unique<CudaQueue>(gpu, stream, hash_blocks));
}

}  // namespace refit::device
