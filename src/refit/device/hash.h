// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The hashes of the product: XXH3-128 with run-time dispatch (device/host/xxhash.cc), and the two that SGLang reports
// per parameter: the first 8 bytes of SHA-256 on the CPU (device/host/sha256.cc, OpenSSL), its own on GPUs
// (gpu_hash.h).

#pragma once

#include <memory>
#include <string>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"

namespace refit::device {

std::unique_ptr<DigestHasher> MakeDigestHasher();

// A streaming parameter hash. Finish() gives 16 hexadecimal digits.
class ParameterHasher {
 public:
  virtual ~ParameterHasher() = default;
  virtual void Reset(ByteCount total) = 0;  // how many bytes Update will bring: some hashes take that in first
  virtual void Update(Bytes bytes) = 0;
  virtual std::string Finish() = 0;
};
std::unique_ptr<ParameterHasher> MakeParameterHasher(ParameterHashKind kind);

std::string Sha256Hex(Bytes bytes);  // 64 digits

}  // namespace refit::device
