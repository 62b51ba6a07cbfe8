// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <memory>

#include "refit/device/hash.h"

#define XXH_STATIC_LINKING_ONLY  // the state's layout, so that a hasher is one allocation
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // SSE2, AVX2 or AVX-512, chosen at run time
#else
#include <xxhash.h>
#endif

namespace refit::device {
namespace {

class XxHasher final : public DigestHasher {
 public:
  XxHasher() { Reset(); }

  void Reset() override { XXH3_128bits_reset(&state_); }
  void Update(Bytes bytes) override { XXH3_128bits_update(&state_, bytes.data(), bytes.size()); }
  Digest Finish() override {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    Digest digest;
    digest.high = hash.high64;
    digest.low = hash.low64;
    return digest;
  }

 private:
  XXH3_state_t state_;
};

}  // namespace

std::unique_ptr<DigestHasher> MakeDigestHasher() { return std::make_unique<XxHasher>(); }

}  // namespace refit::device
