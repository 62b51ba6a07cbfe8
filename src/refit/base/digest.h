// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// 128-bit content digests (XXH3-128, settled D7). The core only knows the interface; device/host/xxhash.h makes one.
// And which hash an engine reports of a parameter (device/hash.h computes them).

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

// How an engine hashes its parameters for /weights_checker: by where they are (settled D8). 16 hexadecimal digits each.
enum class ParameterHashKind : std::uint8_t {
  kSha256Prefix,  // in the host's memory: the first 8 bytes of SHA-256
  kGpu,           // on a GPU: SGLang's own
};

}  // namespace refit
