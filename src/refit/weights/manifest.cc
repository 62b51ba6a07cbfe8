// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/manifest.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/weights/digest_encoding.h"

namespace refit::weights {

Result<Manifest> Manifest::Make(std::vector<TensorSpec> tensors) {
  if (tensors.empty()) {
    return InvalidArgument("a manifest without tensors: there is nothing to send", "check the source of the weights");
  }
  Manifest manifest;
  manifest.sizes_.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    REFIT_ASSIGN_OR_RETURN(const ByteCount size, SizeOf(tensors[i]));
    const auto total = CheckedAdd(manifest.total_size_, size);
    if (!total.has_value()) {
      return InvalidArgument(StrCat("the bytes of all tensors up to ", tensors[i].name, " do not fit in 64 bits"));
    }
    manifest.total_size_ = *total;
    manifest.sizes_.push_back(size);
    if (!manifest.index_.emplace(tensors[i].name, i).second) {
      return InvalidArgument(StrCat("tensor ", tensors[i].name, " occurs twice"), "send every name once");
    }
  }
  manifest.tensors_ = std::move(tensors);
  return manifest;
}

std::optional<std::size_t> Manifest::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

Digest Manifest::ManifestDigest(DigestHasher& hasher) const {
  hasher.Reset();
  for (const TensorSpec& spec : tensors_) {
    std::string bytes;
    AppendSpec(spec, bytes);
    hasher.Update(AsBytes(bytes));
  }
  return hasher.Finish();
}

Status CheckSameTensors(const Manifest& expected, const Manifest& actual, std::string_view whose) {
  std::string first;
  std::size_t difference_count = 0;
  const auto note = [&first, &difference_count](std::string what) {
    if (++difference_count == 1) {
      first = std::move(what);
    }
  };
  for (const TensorSpec& spec : expected.tensors()) {
    const auto found = actual.Find(spec.name);
    if (!found.has_value()) {
      note(StrCat("lacks ", ToString(spec)));
    } else if (const TensorSpec& other = actual.tensors()[*found]; other != spec) {
      note(StrCat("has ", ToString(other), ", not ", TorchName(spec.dtype), ToString(spec.shape)));
    }
  }
  for (const TensorSpec& spec : actual.tensors()) {
    if (!expected.Find(spec.name).has_value()) {
      note(StrCat("has ", ToString(spec), ", which is not expected"));
    }
  }
  if (difference_count == 0) {
    return OkStatus();
  }
  const std::string more = difference_count == 1 ? "" : StrCat(" and ", difference_count - 1, " more differ");
  return InvalidArgument(StrCat(whose, " ", first, more), "give both sides the same model");
}

Digest RootDigest(const Manifest& manifest, std::span<const Digest> digests, DigestHasher& hasher) {
  REFIT_CHECK(digests.size() == manifest.tensor_count(), "one digest per tensor");
  std::vector<std::size_t> order(digests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&manifest](std::size_t a, std::size_t b) {
    return manifest.tensors()[a].name < manifest.tensors()[b].name;
  });
  hasher.Reset();
  for (const std::size_t i : order) {
    std::string bytes;
    AppendSpec(manifest.tensors()[i], bytes);
    AppendDigest(REFIT_MUTANT("RX-SUM-01/sum", digests[i],
                              std::accumulate(digests.begin(), digests.end(), Digest(),
                                              [](Digest sum, const Digest& digest) {
                                                sum.high += digest.high;
                                                sum.low += digest.low;
                                                return sum;
                                              })),
                 bytes);
    hasher.Update(AsBytes(bytes));
  }
  return hasher.Finish();
}

}  // namespace refit::weights
