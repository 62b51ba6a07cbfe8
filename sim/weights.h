// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The weights of a run: a few tiny tensors, and contents, each a whole set of real bytes. What a trainer's step makes
// is a new content. From bytes alone one can say which content they are of.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"
#include "refit/base/prng.h"
#include "refit/weights/manifest.h"
#include "sim/plan.h"

namespace refit::sim {

using Content = std::uint32_t;  // 0: what every engine is launched with
inline constexpr Content kNoContent = ~Content{0};

// A digest that is only good here: cheap, and every byte and its place counts.
class SimHasher final : public DigestHasher {
 public:
  void Reset() override;
  void Update(Bytes bytes) override;
  Digest Finish() override;

 private:
  std::uint64_t high_ = 0;
  std::uint64_t low_ = 0;
  std::uint64_t length_ = 0;
};
Digest DigestOf(Bytes bytes);

class WeightSet {
 public:
  WeightSet(const Plan& plan, Prng& prng);

  const std::shared_ptr<const weights::Manifest>& manifest() const { return manifest_; }
  std::size_t tensor_count() const { return manifest_->tensor_count(); }
  Content AddContent();
  Content newest() const { return static_cast<Content>(contents_.size() - 1); }
  Bytes tensor(Content content, std::size_t index) const { return contents_[content].tensors[index]; }
  Digest root(Content content) const { return contents_[content].root; }
  std::optional<Content> WithRoot(const Digest& root) const;
  // Of which content those bytes at that place are; kNoContent: of none.
  Content Recognise(std::size_t tensor, ByteCount offset, Bytes bytes) const;

 private:
  struct One {
    std::vector<std::vector<std::byte>> tensors;
    Digest root;
  };
  std::shared_ptr<const weights::Manifest> manifest_;
  std::vector<One> contents_;
};

}  // namespace refit::sim
