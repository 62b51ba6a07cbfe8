// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Load objects, opened as torch opens them (docs/spec/sglang-wire.md §2.10): 64 bytes of header with an int32 count at
// 0, then data. Whoever lets go takes its share from the count; at 0 the object is unlinked.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"

namespace refit::engine::reference {

class LoadMapping {
 public:
  ~LoadMapping();
  LoadMapping(const LoadMapping&) = delete;
  LoadMapping& operator=(const LoadMapping&) = delete;

  Bytes data() const { return object_.subspan(64); }  // to the object's end
  // Thread: any; once per reader, after its last touch of the data.
  Status LetGo(std::int32_t uses);

 private:
  friend class LoadMappings;
  LoadMapping(std::string shm_name, dev_t device, ino_t inode, MutableBytes object)
      : shm_name_(std::move(shm_name)), device_(device), inode_(inode), object_(object) {}
  std::string shm_name_;
  dev_t device_;
  ino_t inode_;
  MutableBytes object_;
};

// The objects opened lately. Unlike torch, which maps anew for every call, a mapping is kept while calls keep naming
// the same object: mapping 4 MiB costs more than copying it. Thread: one at a time.
class LoadMappings {
 public:
  // Opens by name each time: a missing or too small object is an error with torch's words.
  Result<std::shared_ptr<LoadMapping>> Open(const std::string& shm_name, ByteCount data_size);
  void Clear() { recent_.clear(); }

 private:
  static constexpr std::size_t kKept = 4;             // two slots alternate; a few more for senders that have more
  std::vector<std::shared_ptr<LoadMapping>> recent_;  // oldest first
};

}  // namespace refit::engine::reference
