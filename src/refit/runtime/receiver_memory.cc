// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/receiver_memory.h"

#include <algorithm>
#include <utility>

#include "refit/device/shared_memory.h"

namespace refit::runtime {

Result<std::unique_ptr<ReceiverMemory>> ReceiverMemory::Make(TransportSet& transports, Incarnation incarnation,
                                                             std::vector<device::GpuOrdinal> gpus) {
  std::unique_ptr<device::RefCounters> counters;
  if (!gpus.empty()) {
    REFIT_ASSIGN_OR_RETURN(counters, device::RefCounters::Create(device::IncarnationName("rc", incarnation)));
  }
  std::unique_ptr<ReceiverMemory> memory(
      new ReceiverMemory(transports, incarnation, std::move(gpus), std::move(counters)));
  for (std::uint32_t rank = 0; rank < memory->gpus_.size(); ++rank) {
    REFIT_RETURN_IF_ERROR(memory->EndOf(rank).status());  // opens the GPU now, not in the first refit's stall
  }
  return memory;
}

ReceiverMemory::ReceiverMemory(TransportSet& transports, Incarnation incarnation, std::vector<device::GpuOrdinal> gpus,
                               std::unique_ptr<device::RefCounters> counters)
    : transports_(transports),
      incarnation_(incarnation),
      gpus_(std::move(gpus)),
      counters_(std::move(counters)),
      in_place_(transports, incarnation, counters_.get()) {}

Result<ReceiverMemory::LinkEnd*> ReceiverMemory::EndOf(std::uint32_t first_rank) {
  auto& end = ends_[first_rank];
  if (end == nullptr) {
    const std::optional<device::GpuOrdinal> gpu =
        gpus_.empty() ? std::nullopt : std::optional(gpus_[first_rank % gpus_.size()]);
    auto made = std::make_unique<LinkEnd>(LoadMemory(incarnation_, first_rank, gpu, counters_.get()));
    if (gpu.has_value()) {
      REFIT_ASSIGN_OR_RETURN(made->hashes, device::GpuQueue::Make(*gpu));
    }
    end = std::move(made);
  }
  return end.get();
}

Result<ReceiverMemory::LinkEnd*> ReceiverMemory::Bind(std::uint32_t first_rank, const std::string& transport,
                                                      const std::string& address, Instant deadline) {
  REFIT_ASSIGN_OR_RETURN(LinkEnd* const end, EndOf(first_rank));
  if (end->link == nullptr || end->transport != transport || end->address != address) {
    end->link.reset();
    REFIT_ASSIGN_OR_RETURN(transport::Transport* const backend, transports_.Get(transport));
    REFIT_ASSIGN_OR_RETURN(end->link, backend->Bind(address, deadline));
    end->transport = transport;
    end->address = address;
  }
  return end;
}

void ReceiverMemory::Close(std::uint32_t first_rank) {
  if (const auto end = ends_.find(first_rank); end != ends_.end()) {
    end->second->link.reset();
  }
}

void ReceiverMemory::DropLinks() {
  for (auto& [rank, end] : ends_) {
    end->link.reset();
  }
}

bool ReceiverMemory::exhausted() const {
  return std::any_of(ends_.begin(), ends_.end(), [](const auto& end) { return end.second->memory.exhausted(); });
}

}  // namespace refit::runtime
