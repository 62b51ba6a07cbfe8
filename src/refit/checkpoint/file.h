// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Files as this folder needs them: read whole, mapped, or written whole-or-not.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "refit/base/bytes.h"
#include "refit/base/status.h"

namespace refit::checkpoint {

// The whole of a regular file of at most `limit` bytes.
Result<std::string> ReadFile(const std::string& path, ByteCount limit);

// A regular file, mapped read-only and shared. Reading it after somebody truncated it is a SIGBUS: device::GuardMapped.
class MappedFile {
 public:
  static Result<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes bytes() const { return bytes_; }

 private:
  explicit MappedFile(Bytes bytes) : bytes_(bytes) {}
  Bytes bytes_;
};

// A file that appears under its path only when it is complete; dropped before that, it leaves nothing.
class FileDraft {
 public:
  static Result<std::unique_ptr<FileDraft>> Create(const std::string& path);
  ~FileDraft();
  FileDraft(const FileDraft&) = delete;
  FileDraft& operator=(const FileDraft&) = delete;

  // bytes may be mapped: the kernel reads them, so that a truncated source is DATA_LOSS and no signal.
  Status Append(Bytes bytes);
  Status Publish();

 private:
  FileDraft(std::string path, std::string draft_path, int descriptor);
  std::string path_;
  std::string draft_path_;
  int descriptor_;
};

Status WriteFile(const std::string& path, std::string_view text);

// The same for a folder. Parent folders are created.
class FolderDraft {
 public:
  static Result<std::unique_ptr<FolderDraft>> Create(const std::string& path);
  ~FolderDraft();
  FolderDraft(const FolderDraft&) = delete;
  FolderDraft& operator=(const FolderDraft&) = delete;

  const std::string& draft_path() const { return draft_path_; }

  enum class Taken : std::uint8_t { kRefuse, kReplace };
  // taken: what to do where a folder that is not empty has the name already.
  Status Publish(Taken taken);

 private:
  FolderDraft(std::string path, std::string draft_path);
  std::string path_;
  std::string draft_path_;
};

}  // namespace refit::checkpoint
