// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// 128-bit content digests (XXH3-128, settled D7). The core only knows the interface; device/host/xxhash.h makes one.

#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"

namespace refit {

// The canonical XXH3-128 value: high word first when printed, 32 hexadecimal digits.
struct Digest : Id128 {
  friend constexpr auto operator<=>(const Digest&, const Digest&) = default;
};

// A streaming hash. Thread: a value of one thread. Reset() before each use.
class DigestHasher {
 public:
  virtual ~DigestHasher() = default;
  virtual void Reset() = 0;
  virtual void Update(Bytes bytes) = 0;
  virtual Digest Finish() = 0;  // the digest of all bytes since Reset()
};

}  // namespace refit
