// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/host/memory_ceiling.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/exec/clock.h"

namespace refit::device {
namespace {

// The CPUs that this process may use, ascending.
std::vector<int> AllowedCpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) {
        cpus.push_back(cpu);
      }
    }
  }
  return cpus;
}

// The index-th allowed CPU; where there are fewer, threads share. Not pinning is no error, only a lower figure.
void PinThisThread(std::size_t index) {
  const std::vector<int> cpus = AllowedCpus();
  if (!cpus.empty()) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpus[index % cpus.size()]), &one);
    sched_setaffinity(0, sizeof(one), &one);
  }
}

// The partner answers within microseconds on a core of its own; where the cores are shared it must be let run.
template <typename Ready>
void SpinUntil(const Ready& ready) {
  for (int spins = 0; !ready(); ++spins) {
    if (spins % 256 == 255) {
      std::this_thread::yield();
    }
  }
}

}  // namespace

struct MemoryCeiling::Progress {
  alignas(64) std::atomic<std::size_t> filled = 0;
  alignas(64) std::atomic<std::size_t> drained = 0;
  alignas(64) std::atomic<int> pinned = 0;
  std::atomic<bool> failed = false;
};

Result<std::unique_ptr<MemoryCeiling>> MemoryCeiling::Create(std::vector<Bytes> sources,
                                                             std::vector<stream::CopyPlan> loads) {
  std::unique_ptr<MemoryCeiling> ceiling(new MemoryCeiling);
  ceiling->sources_ = std::move(sources);
  ByteCount total = 0;
  ByteCount largest = 1;
  for (stream::CopyPlan& plan : loads) {
    Load load;
    load.destination_offset = total;
    for (const stream::Copy& copy : plan) {
      load.size = std::max(load.size, copy.target_offset + copy.size);
      load.entry_count = std::max(load.entry_count, copy.entry + 1);
    }
    load.plan = std::move(plan);
    total += load.size;
    largest = std::max(largest, load.size);
    ceiling->loads_.push_back(std::move(load));
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    REFIT_ASSIGN_OR_RETURN(ceiling->slots_[i], SharedMemory::Create(OwnedName(StrCat("ceiling-", i)), largest));
  }
  ceiling->destination_.resize(total);  // zeroed, hence every page is there
  return ceiling;
}

Status MemoryCeiling::CopyIn(Progress& progress) {
  std::vector<Digest> digests;
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    SpinUntil([&] { return i < progress.drained.load(std::memory_order_acquire) + kSlots; });
    const Load& load = loads_[i];
    REFIT_RETURN_IF_ERROR(
        RunCopies(load.plan, sources_, slots_[i % kSlots]->bytes(), load.entry_count, nullptr, digests));
    progress.filled.store(i + 1, std::memory_order_release);
  }
  return OkStatus();
}

void MemoryCeiling::CopyOut(Progress& progress) {
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    SpinUntil([&] { return i < progress.filled.load(std::memory_order_acquire) || progress.failed.load(); });
    if (progress.failed.load()) {
      return;
    }
    std::memcpy(destination_.data() + loads_[i].destination_offset, slots_[i % kSlots]->bytes().data(), loads_[i].size);
    progress.drained.store(i + 1, std::memory_order_release);
  }
}

Result<Duration> MemoryCeiling::Measure() {
  Progress progress;
  Status status;
  Instant start;
  std::thread in([&] {
    PinThisThread(0);
    ++progress.pinned;
    SpinUntil([&] { return progress.pinned.load() == 2; });
    start = exec::Now();
    status = CopyIn(progress);
    if (!status.ok()) {
      progress.failed.store(true);
    }
  });
  std::thread out([&] {
    PinThisThread(1);
    ++progress.pinned;
    CopyOut(progress);
  });
  in.join();
  out.join();
  const Instant end = exec::Now();
  REFIT_RETURN_IF_ERROR(status);
  return end - start;
}

}  // namespace refit::device
