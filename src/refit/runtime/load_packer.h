// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Packs buckets of a source into slots and digests them on the way: by the processor from mapped files, by copies on a
// stream where the source is in GPU memory.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/cuda.h"
#include "refit/device/gpu_hash.h"
#include "refit/device/memory.h"
#include "refit/rpc/load_stream.h"
#include "refit/runtime/source.h"
#include "refit/stream/bucket_packer.h"

namespace refit::runtime {

// Of a tensor in GPU memory, or of a chunk of it, from its sum (docs/decisions/0005).
inline Digest GpuDigest(std::uint64_t sum, ByteCount total) { return {{device::FinishGpuHash(sum, total), total}}; }

enum class Digests : std::uint8_t { kOn, kOff };  // off: for benches only

// One stream's. Thread: one. Buckets are started and finished in order; slots are the caller's until finished.
class LoadPacker {
 public:
  // queue: of the source's GPU, kept by the caller from one refit to the next; null for a source on the host.
  // sums: what Source::GpuSums made of the cut that is sent; null for a source on the host.
  static std::unique_ptr<LoadPacker> Make(const Source& source, Digests digests, rpc::DigestKind kind,
                                          device::GpuQueue* queue, const Source::EntrySums* sums);
  virtual ~LoadPacker() = default;

  // How many started buckets may wait for their Finish.
  virtual std::size_t depth() const = 0;
  virtual Status Start(const stream::PackedBucket& packed, device::Memory slot) = 0;
  // Returns when every byte of the oldest started bucket is in its slot (RC-BKT-07), with the bucket's digest.
  virtual Result<Digest> Finish(Instant deadline) = 0;
  // Of every tensor of the stream, in order, after the last Finish.
  const std::vector<Digest>& tensor_digests() const { return tensor_digests_; }

 protected:
  std::vector<Digest> tensor_digests_;
};

}  // namespace refit::runtime
