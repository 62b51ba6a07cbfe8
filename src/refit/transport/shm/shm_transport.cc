// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/shm/shm_transport.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"
#include "refit/transport/op_table.h"

namespace refit::transport {
namespace {

using device::ProcessIdentity;
using device::SharedMemory;

constexpr std::string_view kDescriptorPrefix = "shm:";
constexpr std::string_view kAddressPrefix = "host:";
constexpr std::size_t kMaxTextSize = 512;

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && text.front() != '-';
}

// "host:<boot id>:<pid>:<start time>"
struct PeerAddress {
  std::string_view boot_id;
  ProcessIdentity process;
};

Result<PeerAddress> ParseAddress(std::string_view text) {
  const Status error = InvalidArgument("not an address of the shm transport",
                                       "it reads host:<boot id>:<pid>:<start time>, as the peer's Address() says");
  if (text.size() > kMaxTextSize || !text.starts_with(kAddressPrefix)) {
    return error;
  }
  const std::string_view rest = text.substr(kAddressPrefix.size());
  const std::size_t last = rest.rfind(':');
  const std::size_t middle = last == std::string_view::npos || last == 0 ? last : rest.rfind(':', last - 1);
  if (last == std::string_view::npos || middle == std::string_view::npos || middle >= last) {
    return error;
  }
  PeerAddress address{rest.substr(0, middle), {}};
  const std::string_view pid = rest.substr(middle + 1, last - middle - 1);
  if (!ParseNumber(pid, address.process.pid) || !ParseNumber(rest.substr(last + 1), address.process.start_time)) {
    return error;
  }
  return address;
}

class ShmLink final : public Link {
 public:
  explicit ShmLink(ProcessIdentity peer) : peer_(peer) {}

  // Reads at once: a copy between two mappings of one host has nothing to wait for.
  Result<OpId> Fetch(const Descriptor& descriptor, Range range, device::Memory into) override {
    REFIT_ASSIGN_OR_RETURN(SharedMemory* const memory, Map(descriptor));
    REFIT_RETURN_IF_ERROR(CheckRange(range, memory->bytes().size(), into));
    REFIT_RETURN_IF_ERROR(device::CheckHostMemory(into, "transport shm"));
    const OpId op = ops_.Start();
    ops_.End(op, device::GuardMapped(memory->name(), [&] {
               if (range.size > 0) {
                 std::memcpy(into.bytes.data(), memory->bytes().data() + range.offset, range.size);
               }
             }));
    return op;
  }

  OpState Poll(OpId op) override { return ops_.state(op); }
  Status error(OpId op) const override { return ops_.error(op); }
  FenceOutcome Fence(Instant /*deadline*/) override { return FenceOutcome::kFenced; }

  Result<device::Memory> MapInPlace(const Descriptor& descriptor) override {
    REFIT_ASSIGN_OR_RETURN(SharedMemory* const memory, Map(descriptor));
    return device::Memory(memory->bytes());
  }

  void Close() override { closed_ = true; }

 private:
  Result<SharedMemory*> Map(const Descriptor& descriptor) {
    if (closed_) {
      return Unavailable("the link is closed");
    }
    const auto known = mapped_.find(descriptor.text);
    if (known != mapped_.end()) {
      return known->second.get();
    }
    REFIT_ASSIGN_OR_RETURN(const ShmObject object, ParseShmDescriptor(descriptor));
    if (device::OwnerOf(object.name) != peer_) {
      return NotFound(StrCat(object.name, " is not memory of process ", peer_.pid),
                      "each link reads its own peer only");
    }
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory, SharedMemory::Open(object.name, object.size));
    return mapped_.emplace(descriptor.text, std::move(memory)).first->second.get();
  }

  const ProcessIdentity peer_;
  std::atomic<bool> closed_ = false;
  OpTable ops_;
  std::map<std::string, std::unique_ptr<SharedMemory>, std::less<>> mapped_;  // by descriptor
};

}  // namespace

Result<ShmObject> ParseShmDescriptor(const Descriptor& descriptor) {
  const std::string_view text = descriptor.text;
  const std::size_t colon = text.rfind(':');
  ShmObject object;
  if (text.size() <= kMaxTextSize && text.starts_with(kDescriptorPrefix) && colon >= kDescriptorPrefix.size() &&
      ParseNumber(text.substr(colon + 1), object.size)) {
    object.name = text.substr(kDescriptorPrefix.size(), colon - kDescriptorPrefix.size());
    if (device::OwnerOf(object.name) && object.size > 0) {
      return object;
    }
  }
  return InvalidArgument("not a descriptor of the shm transport",
                         "it reads shm:/refit-<pid>-<start time>-<what>:<size>");
}

ShmTransport::ShmTransport() : tag_(ToHex(exec::RandomId()).substr(0, 8)) {}

std::string ShmTransport::NextName(std::string_view what) { return StrCat(what, "-", tag_, "-", next_name_++); }

Result<MutableBytes> ShmTransport::Allocate(std::string_view what, ByteCount size) {
  const std::lock_guard lock(mutex_);
  const std::string name = device::OwnedName(NextName(what));
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory, SharedMemory::Create(name, size));
  objects_.push_back(std::move(memory));
  return objects_.back()->bytes();
}

void ShmTransport::Release(MutableBytes memory) {
  const std::lock_guard lock(mutex_);
  std::erase_if(objects_, [&](const auto& object) { return object->bytes().data() == memory.data(); });
}

// Each export is a name of its own, so that Unexport takes away exactly that one.
Result<Descriptor> ShmTransport::Export(device::Memory memory) {
  REFIT_RETURN_IF_ERROR(device::CheckHostMemory(memory, "transport shm"));
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<SharedMemory>& object : objects_) {
    if (object->bytes().data() == memory.bytes.data() && object->bytes().size() == memory.size()) {
      std::string name = device::OwnedName(NextName("export"));
      REFIT_RETURN_IF_ERROR(object->AddName(name));
      return Descriptor{StrCat(kDescriptorPrefix, name, ":", memory.size())};
    }
  }
  return InvalidArgument("the shm transport exports only whole objects of its own", "get the memory from Allocate()");
}

void ShmTransport::Unexport(const Descriptor& descriptor) {
  const Result<ShmObject> named = ParseShmDescriptor(descriptor);
  if (!named.ok()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<SharedMemory>& object : objects_) {
    object->RemoveName(named->name);
  }
}

Result<std::unique_ptr<Link>> ShmTransport::Bind(std::string_view peer_address, Instant /*deadline*/) {
  REFIT_ASSIGN_OR_RETURN(const PeerAddress peer, ParseAddress(peer_address));
  if (peer.boot_id != BootId()) {
    return Unavailable("the peer is on another host: the shm transport reaches processes of this host only",
                       "start both on one host, or set transport.name to a network transport");
  }
  // No waiting: an address names one life of a process, and one that has ended does not come back.
  if (!device::IsRunning(peer.process)) {
    return Unavailable(StrCat("no process ", peer.process.pid, " of that start time runs here"),
                       "the peer has ended, or runs in a container with pids of its own (docker run --pid=…)");
  }
  return std::unique_ptr<Link>(std::make_unique<ShmLink>(peer.process));
}

std::string ShmTransport::Address() const {
  const ProcessIdentity self = device::ThisProcess();
  return StrCat(kAddressPrefix, BootId(), ":", self.pid, ":", self.start_time);
}

}  // namespace refit::transport
