// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/shared_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "refit/base/check.h"
#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/host/printable.h"

namespace refit::device {
namespace {

constexpr const char* kSharedMemoryFolder = "/dev/shm";
constexpr mode_t kMode = 0600;

std::string PathOf(std::string_view name) { return StrCat(kSharedMemoryFolder, name); }

std::string InMebibytes(ByteCount bytes) {
  const ByteCount tenths = (bytes * 10 + kMiB / 2) / kMiB;
  return StrCat(tenths / 10, ".", tenths % 10, " MiB");
}

// Our names only: what comes from a peer must never reach another program's object, or a path.
Status CheckName(std::string_view name) {
  if (!OwnerOf(name)) {
    return InvalidArgument(StrCat("'", Printable(name), "' does not name shared memory of ours"),
                           "names look like /refit-<pid>-<start time>-<what>");
  }
  return OkStatus();
}

Status SystemError(std::string_view what, std::string_view name, int error) {
  const StatusCode code = error == ENOENT   ? StatusCode::kNotFound
                          : error == EEXIST ? StatusCode::kAlreadyExists
                          : error == EACCES ? StatusCode::kPermissionDenied
                                            : StatusCode::kUnavailable;
  return {code, StrCat("cannot ", what, " shared memory ", name, ": ", std::strerror(error)),
          "`ls -l /dev/shm` shows what is there; `refit doctor --clean` removes what dead processes left"};
}

// Every page now, so that running out of space is an error here and not a SIGBUS in mid-load.
Status Reserve(int file, std::string_view name, ByteCount size) {
  int error = EINTR;
  while (error == EINTR) {
    error = posix_fallocate(file, 0, static_cast<off_t>(size));
  }
  if (error == 0) {
    return OkStatus();
  }
  if (error != ENOSPC && error != EFBIG && error != ENOMEM) {
    return SystemError("reserve", name, error);
  }
  struct statvfs space = {};
  const bool known = fstatvfs(file, &space) == 0;
  const ByteCount available = known ? ByteCount{space.f_bavail} * space.f_frsize : 0;
  return ResourceExhausted(StrCat("shared memory ", name, " needs ", InMebibytes(size), ", /dev/shm has ",
                                  known ? InMebibytes(available) : "an unknown amount", " free"),
                           "give the container more (docker run --shm-size=…), lower transport.shm.load_bytes, or run "
                           "`refit doctor --clean`");
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> SharedMemory::Create(std::string name, ByteCount size) {
  REFIT_RETURN_IF_ERROR(CheckName(name));
  if (size == 0) {
    return InvalidArgument(StrCat("shared memory ", name, " of 0 bytes"), "ask for at least one byte");
  }
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (file < 0) {
    return SystemError("create", name, errno);
  }
  std::unique_ptr<SharedMemory> memory(new SharedMemory(std::move(name), file, Origin::kCreated));
  flock(file, LOCK_SH);  // until closed: see SweepDeadOwners
  REFIT_RETURN_IF_ERROR(Reserve(file, memory->name_, size));
  REFIT_RETURN_IF_ERROR(memory->Map(size));
  return memory;
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::Open(std::string_view name, ByteCount size) {
  REFIT_RETURN_IF_ERROR(CheckName(name));
  std::string owned(name);
  const int file = shm_open(owned.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (file < 0) {
    return SystemError("open", name, errno);
  }
  std::unique_ptr<SharedMemory> memory(new SharedMemory(std::move(owned), file, Origin::kOpened));
  struct stat status = {};
  if (fstat(file, &status) != 0) {
    return SystemError("inspect", name, errno);
  }
  if (size == 0 || static_cast<ByteCount>(status.st_size) != size) {
    return FailedPrecondition(StrCat("shared memory ", name, " has ", status.st_size, " bytes, expected ", size),
                              "both ends must name the same object; bind again");
  }
  REFIT_RETURN_IF_ERROR(memory->Map(size));
  return memory;
}

// MAP_POPULATE: the page faults belong to bind time, not to the first load's stall.
Status SharedMemory::Map(ByteCount size) {
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, 0);
  if (address == MAP_FAILED) {
    return SystemError("map", name_, errno);
  }
  bytes_ = {static_cast<std::byte*>(address), size};
  return OkStatus();
}

SharedMemory::~SharedMemory() {
  Unlink();
  if (!bytes_.empty()) {
    munmap(bytes_.data(), bytes_.size());
  }
  close(file_);
}

Status SharedMemory::AddName(std::string name) {
  REFIT_RETURN_IF_ERROR(CheckName(name));
  if (link(PathOf(name_).c_str(), PathOf(name).c_str()) != 0) {
    return SystemError(StrCat("give the name ", name, " to"), name_, errno);
  }
  aliases_.push_back(std::move(name));
  return OkStatus();
}

Result<SharedName> SharedName::Make(std::string_view existing, std::string name) {
  REFIT_RETURN_IF_ERROR(CheckName(existing));
  REFIT_RETURN_IF_ERROR(CheckName(name));
  if (link(PathOf(existing).c_str(), PathOf(name).c_str()) != 0) {
    return SystemError(StrCat("give the name ", name, " to"), existing, errno);
  }
  return SharedName(std::move(name));
}

SharedName::~SharedName() {
  if (!name_.empty()) {
    shm_unlink(name_.c_str());
  }
}

void SharedMemory::RemoveName(std::string_view name) {
  const auto found = std::find(aliases_.begin(), aliases_.end(), name);
  if (found != aliases_.end()) {
    shm_unlink(found->c_str());
    aliases_.erase(found);
  }
}

void SharedMemory::Unlink() {
  for (const std::string& alias : aliases_) {
    shm_unlink(alias.c_str());
  }
  aliases_.clear();
  if (origin_ == Origin::kCreated && !unlinked_) {
    shm_unlink(name_.c_str());
    unlinked_ = true;
  }
}

std::vector<std::string> SweepDeadOwners() {
  std::vector<std::string> removed;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(kSharedMemoryFolder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = "/" + entry->path().filename().string();
    const std::optional<ProcessIdentity> owner = OwnerOf(name);
    if (!owner || IsRunning(*owner)) {
      continue;
    }
    if (CountsPidsAsWeDo(name)) {
      if (shm_unlink(name.c_str()) == 0) {
        removed.push_back(name);
      }
      continue;
    }
    const int file = shm_open(name.c_str(), O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) {
      continue;  // another user's, or gone already
    }
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && shm_unlink(name.c_str()) == 0) {
      removed.push_back(name);
    }
    close(file);
  }
  return removed;
}

LoadSlot::LoadSlot(MutableBytes object) : object_(object) {
  REFIT_CHECK(object.size() >= kLoadHeaderSize, "a load slot begins with a 64-byte header");
}

namespace {

// torch increments and decrements the same four bytes with atomics of its own, in another process.
std::atomic_ref<std::int32_t> CountOf(MutableBytes object) {
  return std::atomic_ref<std::int32_t>(*reinterpret_cast<std::int32_t*>(object.data()));
}

}  // namespace

void LoadSlot::Initialise() {
  std::memset(object_.data(), 0, kLoadHeaderSize);
  CountOf(object_).store(1, std::memory_order_release);
}

void LoadSlot::AddReaders(std::int32_t readers) {
  std::atomic_ref<std::int32_t> count = CountOf(object_);
  if (REFIT_MUTANT("RC-PAY-09/reset-to-1", false, true)) {
    count.store(1);
  }
  count.fetch_add(readers, std::memory_order_acq_rel);
}

std::int32_t LoadSlot::count() const { return CountOf(object_).load(std::memory_order_acquire); }

}  // namespace refit::device
