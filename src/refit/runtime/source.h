// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A policy worker's weights for one lease: an open checkpoint, its plan, and the plan cut into loads.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/checkpoint/checkpoint.h"
#include "refit/device/cuda.h"
#include "refit/device/hash.h"
#include "refit/device/memory.h"
#include "refit/stream/bucket_packer.h"
#include "refit/weights/manifest.h"
#include "refit/weights/rank_hashes.h"
#include "refit/weights/reshard_plan.h"
#include "refit/weights/shard_layout.h"

namespace refit::runtime {

// Thread: any; immutable but for the cache of cuts.
class Source {
 public:
  // gpu: where the tensors are kept, as a trainer's are; nothing: in mapped files, where they are.
  static Result<std::shared_ptr<Source>> Open(const std::string& folder,
                                              std::optional<device::GpuOrdinal> gpu = std::nullopt);

  // Whether its files are still those that were opened (device, inode, size, time of change).
  bool Unchanged() const;
  const std::string& folder() const { return checkpoint_->folder(); }
  std::span<const Bytes> tensors() const { return checkpoint_->all_bytes(); }  // the host's
  std::optional<device::GpuOrdinal> gpu() const { return gpu_; }
  std::span<const device::Memory> gpu_tensors() const { return gpu_tensors_; }  // in the order of the manifest
  const std::shared_ptr<const weights::Manifest>& manifest() const { return manifest_; }  // of the source
  const weights::Manifest& delivered() const { return delivered_; }                       // of the plan
  // The plan in loads or pieces of at most `bytes`; cut once for each.
  Result<std::shared_ptr<const std::vector<stream::PackedBucket>>> Cut(stream::PackUnit unit, ByteCount bytes);

  // A source on a GPU: the hash sum of every entry of that cut, bucket by bucket (device/gpu_hash.h), hashed where the
  // tensors lie in one go, once for each cut. Empty where an entry is more than one stretch of a tensor: then slots
  // must be hashed.
  using EntrySums = std::vector<std::vector<std::uint64_t>>;
  Result<std::shared_ptr<const EntrySums>> GpuSums(stream::PackUnit unit, ByteCount bytes);

  // What each rank of an engine must hold, hashed as it hashes (D8). Reads every byte once for each rank that has it.
  Result<std::vector<weights::RankHashes>> ExpectedHashes(weights::Hashing hashing) const;

 private:
  Source() = default;
  Status Upload(device::GpuOrdinal gpu);
  Result<std::string> HashOf(const weights::EngineParameter& parameter, device::ParameterHasher& hasher) const;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  std::shared_ptr<const weights::Manifest> manifest_;
  std::string fingerprint_;
  weights::ReshardPlan plan_;
  weights::Manifest delivered_;
  std::optional<device::GpuOrdinal> gpu_;
  std::unique_ptr<device::GpuArena> arena_;
  std::vector<device::Memory> gpu_tensors_;
  std::mutex mutex_;  // guards cuts_: streams of several receivers ask at once
  std::map<std::pair<stream::PackUnit, ByteCount>, std::shared_ptr<const std::vector<stream::PackedBucket>>> cuts_;
  std::mutex sums_mutex_;  // guards sums_; held while a GPU hashes
  std::map<std::pair<stream::PackUnit, ByteCount>, std::shared_ptr<const EntrySums>> sums_;
};

}  // namespace refit::runtime
