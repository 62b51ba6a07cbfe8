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

namespace refit::engine::reference {

Result<std::unique_ptr<LoadMapping>> LoadMapping::Open(const std::string& shm_name, ByteCount data_size) {
  static_assert(device::kLoadHeaderSize == 64, "data() and torch agree on the header");
  const auto failed = [&](std::string_view what) {
    return NotFound(StrCat("RuntimeError: unable to ", what, " shared memory object <", shm_name,
                           "> in read-write mode: ", std::generic_category().message(errno), " (", errno, ")"));
  };
  const std::optional<ByteCount> size = CheckedAdd(data_size, device::kLoadHeaderSize);
  if (!size.has_value() || shm_name.find('\0') != std::string::npos) {
    return InvalidArgument("RuntimeError: a shared memory object with an impossible name or size");
  }
  const int fd = shm_open(shm_name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) {
    return failed("open");
  }
  struct stat status{};
  const bool fits = fstat(fd, &status) == 0 && static_cast<ByteCount>(status.st_size) >= *size;
  void* address = fits ? mmap(nullptr, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int error = errno;
  close(fd);
  if (!fits) {
    return InvalidArgument(StrCat("RuntimeError: shared memory object <", shm_name, "> has ", status.st_size,
                                  " bytes, the payload says ", *size));
  }
  if (address == MAP_FAILED) {
    errno = error;
    return failed("mmap");
  }
  return std::unique_ptr<LoadMapping>(new LoadMapping(shm_name, {static_cast<std::byte*>(address), *size}));
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
