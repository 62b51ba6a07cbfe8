// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/weights.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "refit/base/str.h"

namespace refit::sim {

void SimHasher::Reset() {
  high_ = 0x9ae16a3b2f90404f;
  low_ = 0xcbf29ce484222325;
  length_ = 0;
}

void SimHasher::Update(Bytes bytes) {
  for (const std::byte byte : bytes) {
    low_ = (low_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    high_ = (std::rotl(high_, 9) ^ low_) * 0x9e3779b97f4a7c15;
  }
  length_ += bytes.size();
}

Digest SimHasher::Finish() { return Digest{{high_ ^ (high_ >> 29U), low_ ^ length_}}; }

Digest DigestOf(Bytes bytes) {
  SimHasher hasher;
  hasher.Reset();
  hasher.Update(bytes);
  return hasher.Finish();
}

WeightSet::WeightSet(const Plan& plan, Prng& prng) {
  std::vector<weights::TensorSpec> specs;
  for (std::uint32_t i = 0; i < plan.tensors; ++i) {
    const bool wide = prng.Below(3) == 0;
    const auto rows = static_cast<std::int64_t>(2 + prng.Below(11));
    specs.push_back({StrCat("t", i), wide ? weights::DType::kBfloat16 : weights::DType::kUint8, {rows, 2}});
  }
  manifest_ = std::make_shared<const weights::Manifest>(*weights::Manifest::Make(std::move(specs)));
  AddContent();
}

Content WeightSet::AddContent() {
  const auto content = static_cast<std::uint64_t>(contents_.size());
  One one;
  std::vector<Digest> digests;
  for (std::size_t index = 0; index < tensor_count(); ++index) {
    Prng bytes(content * 1000003 + index);
    std::vector<std::byte>& tensor = one.tensors.emplace_back(manifest_->size(index));
    for (std::byte& byte : tensor) {
      byte = static_cast<std::byte>(bytes.Next() >> 56U);
    }
    tensor[0] = static_cast<std::byte>(content);  // halves of two contents never look alike
    tensor[tensor.size() / 2] = static_cast<std::byte>(content);
    digests.push_back(DigestOf(tensor));
  }
  SimHasher hasher;
  one.root = weights::RootDigest(*manifest_, digests, hasher);
  contents_.push_back(std::move(one));
  return static_cast<Content>(content);
}

std::optional<Content> WeightSet::WithRoot(const Digest& root) const {
  for (std::size_t content = contents_.size(); content-- > 0;) {
    if (contents_[content].root == root) {
      return static_cast<Content>(content);
    }
  }
  return std::nullopt;
}

Content WeightSet::Recognise(std::size_t tensor, ByteCount offset, Bytes bytes) const {
  for (std::size_t content = contents_.size(); content-- > 0;) {
    const Bytes whole = this->tensor(static_cast<Content>(content), tensor);
    if (offset + bytes.size() <= whole.size() && std::ranges::equal(whole.subspan(offset, bytes.size()), bytes)) {
      return static_cast<Content>(content);
    }
  }
  return kNoContent;
}

}  // namespace refit::sim
