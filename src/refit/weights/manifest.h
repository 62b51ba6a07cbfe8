// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A manifest: the tensors of one set of weights, in the order in which they are streamed.
// Validated when made, so that holders never check again: no tensor twice, sizes computed, at least one tensor.

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"
#include "refit/base/status.h"
#include "refit/weights/tensor_spec.h"

namespace refit::weights {

class Manifest {
 public:
  Manifest() = default;  // empty; only Make() yields one that may be sent

  // Fails on zero tensors (RC-VER-04), a name that occurs twice (RC-BKT-12), or a spec that SizeOf refuses.
  static Result<Manifest> Make(std::vector<TensorSpec> tensors);

  std::span<const TensorSpec> tensors() const { return tensors_; }
  std::size_t tensor_count() const { return tensors_.size(); }
  ByteCount size(std::size_t index) const { return sizes_[index]; }
  ByteCount total_size() const { return total_size_; }
  std::optional<std::size_t> Find(std::string_view name) const;

  // Names, dtypes and shapes in order: what INTENT carries (RX-ID-05). Encoded as digest_encoding.h says.
  Digest ManifestDigest(DigestHasher& hasher) const;

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<ByteCount> sizes_;
  std::map<std::string, std::size_t, std::less<>> index_;
  ByteCount total_size_ = 0;
};

// OK when both hold the same tensors, in any order. Otherwise one line that names the first tensor that is missing,
// extra, or of another shape or dtype, how many more differ, and whose manifest it is ("policy rank 1").
Status CheckSameTensors(const Manifest& expected, const Manifest& actual, std::string_view whose);

// The root of D7: over (name, dtype, shape, tensor digest) in byte order of names. digests[i] belongs to tensor i.
Digest RootDigest(const Manifest& manifest, std::span<const Digest> digests, DigestHasher& hasher);

}  // namespace refit::weights
