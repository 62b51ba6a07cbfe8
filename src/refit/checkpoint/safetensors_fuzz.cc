// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A safetensors file from nobody knows where. What is accepted covers the file's data exactly.

#include <cstddef>
#include <cstdint>

#include "refit/base/check.h"
#include "refit/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto entries = refit::checkpoint::ParseSafetensors({reinterpret_cast<const std::byte*>(data), size});
  if (!entries.ok() || entries->empty()) {
    return 0;
  }
  refit::ByteCount next = entries->front().begin;
  for (const auto& entry : *entries) {
    REFIT_CHECK(entry.begin == next && entry.end >= entry.begin, "tensors overlap or leave a hole");
    const auto entry_size = refit::weights::SizeOf(entry.spec);
    REFIT_CHECK(entry_size.ok() && *entry_size == entry.end - entry.begin, "a range disagrees with its spec");
    next = entry.end;
  }
  REFIT_CHECK(next == size, "the last tensor does not end the file");
  return 0;
}
