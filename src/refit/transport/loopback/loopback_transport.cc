// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/loopback/loopback_transport.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/transport/op_table.h"

namespace refit::transport {

class LoopbackLink final : public Link {
 public:
  explicit LoopbackLink(std::shared_ptr<LoopbackHub::Endpoint> peer) : peer_(std::move(peer)) {}

  Result<OpId> Fetch(const Descriptor& descriptor, Range range, device::Memory into) override {
    if (closed_) {
      return Unavailable("the link is closed");
    }
    const std::lock_guard lock(peer_->mutex);
    REFIT_ASSIGN_OR_RETURN(const Bytes memory, Find(descriptor));
    REFIT_RETURN_IF_ERROR(CheckRange(range, memory.size(), into));
    REFIT_RETURN_IF_ERROR(device::CheckHostMemory(into, "transport loopback"));
    const OpId op = ops_.Start();
    fetches_.emplace(op, PendingFetch{descriptor, range, into.bytes, false});
    return op;
  }

  OpState Poll(OpId op) override {
    const auto found = fetches_.find(op);
    if (found == fetches_.end()) {
      return ops_.state(op);
    }
    if (!closed_ && !found->second.polled) {
      found->second.polled = true;
      return OpState::kPending;
    }
    Finish(op, found->second);
    fetches_.erase(found);
    return ops_.state(op);
  }

  Status error(OpId op) const override { return ops_.error(op); }

  // Nothing writes between polls; ending every operation here makes that final.
  FenceOutcome Fence(Instant /*deadline*/) override {
    for (const auto& [op, fetch] : fetches_) {
      Finish(op, fetch);
    }
    fetches_.clear();
    return FenceOutcome::kFenced;
  }

  Result<device::Memory> MapInPlace(const Descriptor& /*descriptor*/) override {
    return Unimplemented("loopback does not map memory in place", "fetch it");
  }

  void Close() override { closed_ = true; }

 private:
  struct PendingFetch {
    Descriptor descriptor;
    Range range;
    MutableBytes into;
    bool polled;
  };

  // The caller holds the peer's lock.
  Result<Bytes> Find(const Descriptor& descriptor) const {
    if (!peer_->open) {
      return Unavailable("the peer is gone", "bind again");
    }
    const auto found = peer_->exports.find(descriptor.text);
    if (found == peer_->exports.end()) {
      return NotFound("the descriptor names no memory of the peer", "it was made by another transport, or withdrawn");
    }
    return found->second;
  }

  Status Read(const PendingFetch& fetch) const {
    if (closed_) {
      return {StatusCode::kCancelled, "the link was closed"};
    }
    const std::lock_guard lock(peer_->mutex);
    REFIT_ASSIGN_OR_RETURN(const Bytes memory, Find(fetch.descriptor));
    if (fetch.range.size > 0) {
      std::memcpy(fetch.into.data(), memory.data() + fetch.range.offset, fetch.range.size);
    }
    return OkStatus();
  }

  void Finish(OpId op, const PendingFetch& fetch) { ops_.End(op, Read(fetch)); }

  const std::shared_ptr<LoopbackHub::Endpoint> peer_;
  std::atomic<bool> closed_ = false;
  OpTable ops_;
  std::map<OpId, PendingFetch> fetches_;
};

LoopbackTransport::LoopbackTransport(LoopbackHub& hub)
    : hub_(hub), endpoint_(std::make_shared<LoopbackHub::Endpoint>()) {
  const std::lock_guard lock(hub_.mutex_);
  address_ = StrCat("loopback:", hub_.next_address_++);
  hub_.endpoints_.emplace(address_, endpoint_);
}

LoopbackTransport::~LoopbackTransport() {
  {
    const std::lock_guard lock(hub_.mutex_);
    hub_.endpoints_.erase(address_);
  }
  const std::lock_guard lock(endpoint_->mutex);
  endpoint_->open = false;
  endpoint_->exports.clear();
}

Result<Descriptor> LoopbackTransport::Export(device::Memory memory) {
  REFIT_RETURN_IF_ERROR(device::CheckHostMemory(memory, "transport loopback"));
  const std::lock_guard lock(endpoint_->mutex);
  Descriptor descriptor{StrCat(address_, ":", endpoint_->next_export++)};
  endpoint_->exports.emplace(descriptor.text, memory.bytes);
  return descriptor;
}

void LoopbackTransport::Unexport(const Descriptor& descriptor) {
  const std::lock_guard lock(endpoint_->mutex);
  endpoint_->exports.erase(descriptor.text);
}

Result<std::unique_ptr<Link>> LoopbackTransport::Bind(std::string_view peer_address, Instant deadline) {
  std::shared_ptr<LoopbackHub::Endpoint> peer;
  const auto is_there = [&] {
    const std::lock_guard lock(hub_.mutex_);
    const auto found = hub_.endpoints_.find(peer_address);
    if (found != hub_.endpoints_.end()) {
      peer = found->second;
    }
    return peer != nullptr;
  };
  if (!exec::WaitUntil(is_there, deadline)) {
    return Unavailable("nobody answers at that loopback address", "start the peer in this process first");
  }
  return std::unique_ptr<Link>(std::make_unique<LoopbackLink>(std::move(peer)));
}

}  // namespace refit::transport
