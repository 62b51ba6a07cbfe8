// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace refit::engine::reference {
namespace {

#if defined(__x86_64__)

constexpr std::size_t kLine = 32;          // bytes of one AVX2 store
constexpr std::size_t kWorthwhile = 4096;  // below, the caches take it anyway

__attribute__((target("avx2"))) void StreamLines(std::byte* target, const std::byte* source, std::size_t size) {
  for (std::size_t at = 0; at < size; at += kLine) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target + at),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + at)));
  }
  _mm_sfence();
}

bool CanStream() {
  static const bool can = __builtin_cpu_supports("avx2") != 0;
  return can;
}

#endif

}  // namespace

void StreamCopy(std::byte* target, const std::byte* source, std::size_t size) {
#if defined(__x86_64__)
  if (size >= kWorthwhile && CanStream()) {
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(target) % kLine;
    const std::size_t head = misaligned == 0 ? 0 : kLine - misaligned;
    const std::size_t body = (size - head) / kLine * kLine;
    std::memcpy(target, source, head);
    StreamLines(target + head, source + head, body);
    std::memcpy(target + head + body, source + head + body, size - head - body);
    return;
  }
#endif
  std::memcpy(target, source, size);
}

}  // namespace refit::engine::reference
