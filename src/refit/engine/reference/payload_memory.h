// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A load object, opened as torch opens it (docs/spec/sglang-wire.md §2.10): 64 bytes of header with an int32 count at
// 0, then data. Whoever lets go takes its share from the count; at 0 the object is unlinked.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "refit/base/bytes.h"
#include "refit/base/status.h"

namespace refit::engine::reference {

class LoadMapping {
 public:
  // A missing or too small object is an error with torch's words.
  static Result<std::unique_ptr<LoadMapping>> Open(const std::string& shm_name, ByteCount data_size);
  ~LoadMapping();
  LoadMapping(const LoadMapping&) = delete;
  LoadMapping& operator=(const LoadMapping&) = delete;

  Bytes data() const { return object_.subspan(64); }
  // Thread: any; once per reader, after its last touch of the data.
  Status LetGo(std::int32_t uses);

 private:
  LoadMapping(std::string shm_name, MutableBytes object) : shm_name_(std::move(shm_name)), object_(object) {}
  std::string shm_name_;
  MutableBytes object_;
};

}  // namespace refit::engine::reference
