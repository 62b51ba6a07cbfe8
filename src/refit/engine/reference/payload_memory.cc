// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/payload_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <system_error>

#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/device/shared_memory.h"
#include "refit/engine/engine_payload.h"

namespace refit::engine::reference {
namespace {

class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd) : fd_(fd) {}
  ~OwnedDescriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

Result<std::shared_ptr<LoadMapping>> LoadMappings::Open(const std::string& shm_name, ByteCount data_size) {
  static_assert(device::kLoadHeaderSize == 64, "data() and torch agree on the header");
  const auto failed = [&](std::string_view what) {
    return NotFound(StrCat("RuntimeError: unable to ", what, " shared memory object <", shm_name,
                           "> in read-write mode: ", std::generic_category().message(errno), " (", errno, ")"));
  };
  if (shm_name.size() > kMaxShmNameSize) {
    return InvalidArgument("RuntimeError: MapAllocatorContext_filename too long");
  }
  const std::optional<ByteCount> needed = CheckedAdd(data_size, device::kLoadHeaderSize);
  if (!needed.has_value() || shm_name.find('\0') != std::string::npos) {
    return InvalidArgument("RuntimeError: a shared memory object with an impossible name or size");
  }
  const OwnedDescriptor fd(shm_open(shm_name.c_str(), O_RDWR | O_CLOEXEC, 0));
  struct stat status{};
  if (fd.get() < 0 || fstat(fd.get(), &status) != 0) {
    return failed("open");
  }
  const auto size = static_cast<ByteCount>(status.st_size);
  if (size < *needed) {
    return InvalidArgument(
        StrCat("RuntimeError: shared memory object <", shm_name, "> has ", size, " bytes, the payload says ", *needed));
  }
  for (const std::shared_ptr<LoadMapping>& mapping : recent_) {
    if (mapping->device_ == status.st_dev && mapping->inode_ == status.st_ino && mapping->shm_name_ == shm_name &&
        mapping->object_.size() >= *needed) {
      return mapping;
    }
  }
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    return failed("mmap");
  }
  if (recent_.size() == kKept) {
    recent_.erase(recent_.begin());
  }
  recent_.push_back(std::shared_ptr<LoadMapping>(
      new LoadMapping(shm_name, status.st_dev, status.st_ino, {static_cast<std::byte*>(address), size})));
  return recent_.back();
}

LoadMapping::~LoadMapping() { munmap(object_.data(), object_.size()); }

Status LoadMapping::LetGo(std::int32_t uses) {
  std::int32_t left = 1;
  REFIT_RETURN_IF_ERROR(device::GuardMapped(shm_name_, [&] {
    std::atomic_ref<std::int32_t> count(*reinterpret_cast<std::int32_t*>(object_.data()));
    left = count.fetch_sub(uses, std::memory_order_acq_rel) - uses;
  }));
  if (left == 0) {
    shm_unlink(shm_name_.c_str());
  }
  return OkStatus();
}

}  // namespace refit::engine::reference
