// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A policy worker's weights for one lease: an open checkpoint, its plan, and the plan cut into loads.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/checkpoint/checkpoint.h"
#include "refit/stream/bucket_packer.h"
#include "refit/weights/manifest.h"
#include "refit/weights/rank_hashes.h"

namespace refit::runtime {

// Thread: any; immutable but for the cache of cuts.
class Source {
 public:
  static Result<std::shared_ptr<Source>> Open(const std::string& folder);

  // Whether both stand for the same, unchanged files (device, inode, size, time of change).
  bool SameFiles(const Source& other) const { return fingerprint_ == other.fingerprint_; }
  const std::string& folder() const { return checkpoint_->folder(); }
  std::span<const Bytes> tensors() const { return checkpoint_->all_bytes(); }
  const std::shared_ptr<const weights::Manifest>& manifest() const { return manifest_; }  // of the source
  const weights::Manifest& delivered() const { return delivered_; }                       // of the plan
  // The plan in loads of at most load_bytes; cut once per load_bytes.
  Result<std::shared_ptr<const std::vector<stream::PackedBucket>>> Loads(ByteCount load_bytes);

  // What each rank of an engine with this TP size must hold (D8). Reads every byte once.
  Result<std::vector<weights::RankHashes>> ExpectedHashes(std::uint32_t tp_size) const;

 private:
  Source() = default;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  std::shared_ptr<const weights::Manifest> manifest_;
  std::string fingerprint_;
  weights::ReshardPlan plan_;
  weights::Manifest delivered_;
  std::mutex mutex_;  // guards loads_: streams of several receivers ask at once
  std::map<ByteCount, std::shared_ptr<const std::vector<stream::PackedBucket>>> loads_;
};

}  // namespace refit::runtime
