// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What transport tests send (each byte tells where it stood), and how they wait.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "refit/base/bytes.h"
#include "refit/exec/clock.h"
#include "refit/transport/transport.h"

namespace refit::transport {

inline std::byte PatternAt(ByteCount i) { return static_cast<std::byte>((37 * i + i / 251 + 11) % 251); }

inline void FillPattern(MutableBytes memory) {
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = PatternAt(i);
  }
}

inline bool HasPattern(Bytes bytes, ByteCount offset) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != PatternAt(offset + i)) {
      return false;
    }
  }
  return true;
}

inline constexpr std::byte kUntouched{0xDD};

inline Instant In(Duration duration) { return exec::Now() + duration; }

inline bool IsUntouched(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kUntouched; });
}

// Polls until the operation has ended; never longer than 10 s.
inline OpState End(Link& link, OpId op) {
  OpState state = OpState::kPending;
  exec::WaitUntil([&] { return (state = link.Poll(op)) != OpState::kPending; }, In(std::chrono::seconds(10)));
  return state;
}

}  // namespace refit::transport
