// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "refit/exec/random.h"

namespace refit::checkpoint {
namespace {

// Linux moves at most this much per write(2).
constexpr std::size_t kWriteMax = 0x7ffff000;

std::string Reason(int error) { return std::generic_category().message(error); }

Status WriteError(const std::string& path, int error) {
  switch (error) {
    case EFAULT:
      return DataLoss(fmt::format("a source of {} vanished while it was copied", path),
                      "do not change a checkpoint while it is read");
    case ENOSPC:
    case EDQUOT: return ResourceExhausted(fmt::format("cannot write {}: {}", path, Reason(error)), "free space there");
    default:
      return FailedPrecondition(fmt::format("cannot write {}: {}", path, Reason(error)),
                                "name a folder that you may write to");
  }
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) {
      close(value_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

// The size of an open regular file. O_NONBLOCK at open and this check keep a FIFO or a device from hanging us.
Result<ByteCount> RegularFileSize(const Descriptor& file, const std::string& path) {
  struct stat status = {};
  if (file.value() < 0) {
    const int error = errno;
    const std::string message = fmt::format("cannot open {}: {}", path, Reason(error));
    return error == ENOENT ? NotFound(message, "check the path") : FailedPrecondition(message, "check its permissions");
  }
  if (fstat(file.value(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return FailedPrecondition(fmt::format("{} is not a regular file", path), "give a file");
  }
  return static_cast<ByteCount>(status.st_size);
}

int OpenToRead(const std::string& path) { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }

std::string DraftPath(const std::string& path) { return path + ".partial-" + ToHex(exec::RandomId()); }

}  // namespace

Result<std::string> ReadFile(const std::string& path, ByteCount limit) {
  const Descriptor file(OpenToRead(path));
  REFIT_ASSIGN_OR_RETURN(const ByteCount size, RegularFileSize(file, path));
  if (size > limit) {
    return InvalidArgument(fmt::format("{} has {} bytes; at most {} are read", path, size, limit),
                           "check that it is the file it should be");
  }
  std::string text(size, '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = read(file.value(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return DataLoss(fmt::format("{} ended after {} of {} bytes", path, filled, size),
                      "do not change a checkpoint while it is read");
    }
    filled += static_cast<std::size_t>(got);
  }
  return text;
}

Result<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const Descriptor file(OpenToRead(path));
  REFIT_ASSIGN_OR_RETURN(const ByteCount size, RegularFileSize(file, path));
  if (size == 0) {
    return InvalidArgument(fmt::format("{} is empty", path), "download it again");
  }
  void* const address = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.value(), 0);
  if (address == MAP_FAILED) {
    return ResourceExhausted(fmt::format("cannot map {} ({} bytes): {}", path, size, Reason(errno)),
                             "raise the limit on address space (ulimit -v)");
  }
  madvise(address, size, MADV_WILLNEED);  // a hint: its failure changes nothing
  return std::unique_ptr<MappedFile>(new MappedFile({static_cast<const std::byte*>(address), size}));
}

MappedFile::~MappedFile() {
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());  // NOLINT: munmap takes no const
}

FileDraft::FileDraft(std::string path, std::string draft_path, int descriptor)
    : path_(std::move(path)), draft_path_(std::move(draft_path)), descriptor_(descriptor) {}

Result<std::unique_ptr<FileDraft>> FileDraft::Create(const std::string& path) {
  std::string draft_path = DraftPath(path);
  const int descriptor = open(draft_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return WriteError(path, errno);
  }
  return std::unique_ptr<FileDraft>(new FileDraft(path, std::move(draft_path), descriptor));
}

FileDraft::~FileDraft() {
  if (descriptor_ >= 0) {
    close(descriptor_);
    unlink(draft_path_.c_str());
  }
}

Status FileDraft::Append(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), std::min(bytes.size(), kWriteMax));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return WriteError(path_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return OkStatus();
}

Status FileDraft::Publish() {
  const int closed = close(std::exchange(descriptor_, -1));
  if (closed != 0 || rename(draft_path_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(draft_path_.c_str());
    return WriteError(path_, error);
  }
  return OkStatus();
}

Status WriteFile(const std::string& path, std::string_view text) {
  REFIT_ASSIGN_OR_RETURN(const auto draft, FileDraft::Create(path));
  REFIT_RETURN_IF_ERROR(draft->Append(AsBytes(text)));
  return draft->Publish();
}

FolderDraft::FolderDraft(std::string path, std::string draft_path)
    : path_(std::move(path)), draft_path_(std::move(draft_path)) {}

Result<std::unique_ptr<FolderDraft>> FolderDraft::Create(const std::string& path) {
  // An absolute path without a slash at its end, so that the draft is its sibling whatever was typed.
  std::error_code error;
  std::filesystem::path target = std::filesystem::absolute(path, error).lexically_normal();
  if (!target.has_filename()) {
    target = target.parent_path();
  }
  std::filesystem::create_directories(target.parent_path(), error);
  std::string draft_path = DraftPath(target.string());
  if (mkdir(draft_path.c_str(), 0777) != 0) {
    return WriteError(target.string(), errno);
  }
  return std::unique_ptr<FolderDraft>(new FolderDraft(target.string(), std::move(draft_path)));
}

FolderDraft::~FolderDraft() {
  if (!draft_path_.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(draft_path_, ignored);
  }
}

Status FolderDraft::Publish(Taken taken) {
  if (rename(draft_path_.c_str(), path_.c_str()) == 0) {  // also over an empty folder
    draft_path_.clear();
    return OkStatus();
  }
  const int error = errno;
  if (error != EEXIST && error != ENOTEMPTY && error != ENOTDIR) {
    return WriteError(path_, error);
  }
  if (taken == Taken::kRefuse) {
    return {StatusCode::kAlreadyExists, fmt::format("{} exists and is not empty", path_),
            "remove it or name another folder"};
  }
  // Swapped in one step; the destructor removes what was there.
  if (renameat2(AT_FDCWD, draft_path_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    return WriteError(path_, errno);
  }
  return OkStatus();
}

}  // namespace refit::checkpoint
