// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The hashes of the product, made by libraries: XXH3-128 with run-time dispatch (device/host/xxhash.cc) and the first
// 8 bytes of SHA-256, which SGLang's CPU server reports per parameter (device/host/sha256.cc, OpenSSL).

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"

namespace refit::device {

std::unique_ptr<DigestHasher> MakeDigestHasher();

// How an engine hashes its parameters for /weights_checker (settled D8).
enum class ParameterHashKind : std::uint8_t { kSha256Prefix };

// A streaming parameter hash. Finish() gives 16 hexadecimal digits.
class ParameterHasher {
 public:
  virtual ~ParameterHasher() = default;
  virtual void Reset() = 0;
  virtual void Update(Bytes bytes) = 0;
  virtual std::string Finish() = 0;
};
std::unique_ptr<ParameterHasher> MakeParameterHasher(ParameterHashKind kind);

std::string Sha256Hex(Bytes bytes);  // 64 digits

}  // namespace refit::device
