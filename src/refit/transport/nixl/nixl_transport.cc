// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/nixl/nixl_transport.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/transport/op_table.h"

namespace refit::transport {
namespace {

// How long the serving lane naps between rounds: this long after a round that moved bytes, twice as long after each
// that did not, up to the limit.
constexpr Duration kShortNap = std::chrono::microseconds(20);
constexpr Duration kLongNap = std::chrono::milliseconds(2);

class NixlLink final : public Link {
 public:
  NixlLink(std::shared_ptr<NixlAgent> agent, NixlAddress peer) : agent_(std::move(agent)), peer_(std::move(peer)) {}
  ~NixlLink() override {
    for (const auto& [op, request] : requests_) {
      agent_->Forget(request);
    }
  }

  Result<OpId> Fetch(const Descriptor& descriptor, Range range, device::Memory into) override {
    if (closed_) {
      return Unavailable("the link is closed");
    }
    const auto found = peer_.exports.find(descriptor.text);
    if (found == peer_.exports.end()) {
      return NotFound("the descriptor names no memory of the peer that this link is bound to",
                      "bind to the address that the peer had after that export");
    }
    NixlMemory from = found->second;
    REFIT_RETURN_IF_ERROR(CheckRange(range, from.size, into));
    if (range.size == 0) {
      const OpId op = ops_.Start();
      ops_.End(op, OkStatus());
      return op;
    }
    from.address += range.offset;
    from.size = range.size;
    REFIT_ASSIGN_OR_RETURN(const NixlAgent::RequestId request, agent_->Read(peer_.agent, from, into));
    const OpId op = ops_.Start();
    requests_.emplace(op, request);
    return op;
  }

  // After Close as well: a read cannot be cancelled, so its end is its own.
  OpState Poll(OpId op) override {
    const auto found = requests_.find(op);
    if (found != requests_.end()) {
      if (std::optional<Status> ended = agent_->Check(found->second); ended.has_value()) {
        requests_.erase(found);
        ops_.End(op, *std::move(ended));
      }
    }
    return ops_.state(op);
  }

  Status error(OpId op) const override { return ops_.error(op); }

  FenceOutcome Fence(Instant deadline) override {
    const auto all_ended = [this] {
      std::vector<OpId> running;
      for (const auto& [op, request] : requests_) {
        running.push_back(op);
      }
      return std::count_if(running.begin(), running.end(), [this](OpId op) { return Poll(op) == OpState::kPending; }) ==
             0;
    };
    if (!exec::WaitUntil(all_ended, deadline)) {
      return REFIT_MUTANT("RX-XFER-07/take-a-deadline-for-a-fence", FenceOutcome::kUnknown, FenceOutcome::kFenced);
    }
    agent_->Settle();
    return FenceOutcome::kFenced;
  }

  Result<device::Memory> MapInPlace(const Descriptor& /*descriptor*/) override {
    return Unimplemented("nixl does not map memory in place", "fetch it");
  }

  void Close() override { closed_ = true; }

 private:
  const std::shared_ptr<NixlAgent> agent_;  // shared with the transport, which may go first
  const NixlAddress peer_;
  std::atomic<bool> closed_ = false;
  OpTable ops_;
  std::map<OpId, NixlAgent::RequestId> requests_;  // that have not ended
};

}  // namespace

Result<std::unique_ptr<NixlTransport>> NixlTransport::Create(const NixlOptions& options) {
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<NixlAgent> agent, NixlAgent::Create(options));
  std::unique_ptr<NixlTransport> transport(new NixlTransport(std::move(agent)));
  transport->address_.agent = transport->agent_->name();
  REFIT_ASSIGN_OR_RETURN(transport->address_.metadata, transport->agent_->LocalMetadata());
  return transport;
}

NixlTransport::~NixlTransport() {
  serving_.With([](Serving& serving) { serving.stopped = true; });
  lane_.reset();
  for (const auto& [text, registration] : exports_) {
    agent_->Unregister(registration);
  }
  for (const auto& [begin, registration] : prepared_) {
    agent_->Unregister(registration);
  }
}

Status NixlTransport::Prepare(device::Memory landing) {
  const std::lock_guard lock(mutex_);
  if (prepared_.contains(landing.bytes.data())) {
    return FailedPrecondition("landing memory that begins there is prepared already", "forget it first");
  }
  REFIT_ASSIGN_OR_RETURN(const NixlAgent::RegistrationId registration, agent_->Register(landing));
  prepared_.emplace(landing.bytes.data(), registration);
  return OkStatus();
}

void NixlTransport::Forget(device::Memory landing) {
  const std::lock_guard lock(mutex_);
  const auto found = prepared_.find(landing.bytes.data());
  if (found != prepared_.end()) {
    agent_->Unregister(found->second);
    prepared_.erase(found);
  }
}

Result<Descriptor> NixlTransport::Export(device::Memory memory) {
  if (memory.size() == 0) {
    return InvalidArgument("there is nothing to export in 0 bytes");
  }
  const std::lock_guard lock(mutex_);
  REFIT_ASSIGN_OR_RETURN(const NixlAgent::RegistrationId registration, agent_->Register(memory));
  Result<std::string> metadata = agent_->LocalMetadata();
  if (!metadata.ok()) {
    agent_->Unregister(registration);
    return metadata.status();
  }
  const NixlMemory named = NameMemory(memory);
  Descriptor descriptor{FormatNixlDescriptor(agent_->name(), next_export_++, named)};
  exports_.emplace(descriptor.text, registration);
  address_.exports.emplace(descriptor.text, named);
  address_.metadata = *std::move(metadata);
  if (lane_ == nullptr) {
    lane_ = std::make_unique<exec::Lane>(1);
    REFIT_RETURN_IF_ERROR(lane_->Post([this] { Serve(); }));
  }
  serving_.With([](Serving& serving) { serving.has_exports = true; });
  return descriptor;
}

void NixlTransport::Unexport(const Descriptor& descriptor) {
  const std::lock_guard lock(mutex_);
  const auto found = exports_.find(descriptor.text);
  if (found == exports_.end()) {
    return;
  }
  agent_->Unregister(found->second);
  exports_.erase(found);
  address_.exports.erase(descriptor.text);
  if (Result<std::string> metadata = agent_->LocalMetadata(); metadata.ok()) {
    address_.metadata = *std::move(metadata);
  }
  serving_.With([this](Serving& serving) { serving.has_exports = !exports_.empty(); });
}

Result<std::unique_ptr<Link>> NixlTransport::Bind(std::string_view peer_address, Instant deadline) {
  REFIT_ASSIGN_OR_RETURN(NixlAddress peer, ParseNixlAddress(peer_address));
  REFIT_RETURN_IF_ERROR(agent_->Connect(peer, deadline));
  return std::unique_ptr<Link>(std::make_unique<NixlLink>(agent_, std::move(peer)));
}

std::string NixlTransport::Address() const {
  const std::lock_guard lock(mutex_);
  return FormatNixlAddress(address_);
}

void NixlTransport::Serve() {
  Duration nap = kShortNap;
  bool stopped = false;
  while (!stopped) {
    nap = agent_->Progress() ? kShortNap : std::min(2 * nap, kLongNap);
    const auto is_over = [](const Serving& serving) { return serving.stopped; };
    const auto must_go_on = [](const Serving& serving) { return serving.stopped || serving.has_exports; };
    stopped = serving_.Wait(is_over, exec::Now() + nap);
    serving_.Wait(must_go_on, kNever);
  }
}

}  // namespace refit::transport
