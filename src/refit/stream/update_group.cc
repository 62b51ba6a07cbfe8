// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/update_group.h"

#include <algorithm>
#include <string>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::stream {
namespace {

using weights::DType;

std::vector<DType> DTypesInOrder(const Batch& batch) {
  std::vector<DType> out;
  for (const BatchTensor& tensor : batch) {
    if (std::find(out.begin(), out.end(), tensor.spec.dtype) == out.end()) {
      out.push_back(tensor.spec.dtype);
    }
  }
  return out;
}

Batch OfDType(const Batch& batch, DType dtype) {
  Batch out;
  std::copy_if(batch.begin(), batch.end(), std::back_inserter(out),
               [dtype](const BatchTensor& tensor) { return tensor.spec.dtype == dtype; });
  return out;
}

// "a, b, c … (12 names)"
std::string NamesOf(const Batch& batch) {
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(batch.size(), kShown); ++i) {
    out += StrCat(i == 0 ? "" : ", ", batch[i].spec.name);
  }
  return batch.size() > kShown ? StrCat(out, " … (", batch.size(), " names)") : StrCat("[", out, "]");
}

bool SameNames(const Batch& a, const Batch& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const BatchTensor& x, const BatchTensor& y) { return x.spec.name == y.spec.name; });
}

// RC-PAY-02. The aligner implies it; checked here for whoever calls without one.
Status CheckAgreement(const AlignedGroup& group, const std::vector<DType>& dtypes) {
  for (std::size_t r = 1; r < group.size(); ++r) {
    std::vector<DType> all = dtypes;
    for (const DType dtype : DTypesInOrder(group[r])) {
      if (std::find(all.begin(), all.end(), dtype) == all.end()) {
        all.push_back(dtype);
      }
    }
    for (const DType dtype : all) {
      const Batch expected = OfDType(group[0], dtype);
      const Batch actual = OfDType(group[r], dtype);
      if (!SameNames(expected, actual)) {
        return InvalidArgument(StrCat("rank ", r, " has ", weights::TorchName(dtype), " tensors ", NamesOf(actual),
                                      ", rank 0 has ", NamesOf(expected)),
                               "send every rank the same tensors in the same order");
      }
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<AlignedGroup>> SplitIntoCalls(const AlignedGroup& group, DTypeSplit split) {
  std::vector<AlignedGroup> calls;
  if (group.empty()) {
    return calls;
  }
  std::vector<DType> dtypes = DTypesInOrder(group[0]);
  if (REFIT_MUTANT("RC-PAY-02/no-check", true, false)) {
    REFIT_RETURN_IF_ERROR(CheckAgreement(group, dtypes));
  }
  if (dtypes.empty()) {
    return calls;
  }
  if (REFIT_MUTANT("RC-PAY-01/first-dtype-only", false, true)) {
    dtypes.resize(1);
    split = DTypeSplit::kByDType;
  }
  if (split == DTypeSplit::kMixed) {
    calls.push_back(group);
    return calls;
  }
  for (const DType dtype : dtypes) {
    AlignedGroup& call = calls.emplace_back();
    for (const Batch& batch : group) {
      call.push_back(OfDType(batch, dtype));
    }
  }
  return calls;
}

}  // namespace refit::stream
