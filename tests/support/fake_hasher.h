// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// A DigestHasher for tests of pure code: two FNV-1a words with different starts. Order matters, nothing else does.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "refit/base/digest.h"

namespace refit::test {

class FakeHasher : public DigestHasher {
 public:
  void Reset() override {
    digest_.high = 0xcbf29ce484222325;
    digest_.low = 0x9ae16a3b2f90404f;
  }
  void Update(Bytes bytes) override {
    for (const std::byte byte : bytes) {
      digest_.high = (digest_.high ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
      digest_.low = (digest_.low ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    }
  }
  Digest Finish() override { return digest_; }

 private:
  Digest digest_;
};

// Keeps the bytes themselves, for tests of what is hashed.
class RecordingHasher : public FakeHasher {
 public:
  void Reset() override {
    bytes_.clear();
    FakeHasher::Reset();
  }
  void Update(Bytes bytes) override {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    FakeHasher::Update(bytes);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace refit::test
