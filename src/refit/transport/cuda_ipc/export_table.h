// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a process exports right now, where its peers can look it up. CUDA takes no handle back and opens what looks like
// one; so a descriptor counts only while the exporter's table, a POSIX shared-memory object, has it.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "refit/base/status.h"
#include "refit/device/shared_memory.h"

namespace refit::transport {

// Thread: any number look, one at a time changes it.
class ExportTable {
 public:
  static constexpr std::size_t kCapacity = 4096;  // exports: load slots and pieces

  static Result<std::unique_ptr<ExportTable>> Create();                     // the exporter's
  static Result<std::unique_ptr<ExportTable>> Open(std::string_view name);  // a peer's; UNAVAILABLE if there is none

  const std::string& name() const { return memory_->name(); }
  Status Add(std::string_view text);
  void Remove(std::string_view text);  // one that was added; unknown: nothing happens
  bool Has(std::string_view text) const;

 private:
  explicit ExportTable(std::unique_ptr<device::SharedMemory> memory) : memory_(std::move(memory)) {}
  std::uint64_t* Find(std::uint64_t key) const;  // a place that holds it, or nothing

  std::unique_ptr<device::SharedMemory> memory_;  // kCapacity hashes of texts, 0 where a place is free
};

}  // namespace refit::transport
