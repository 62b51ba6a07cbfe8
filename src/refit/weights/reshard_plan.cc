// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/reshard_plan.h"

#include "refit/base/str.h"

namespace refit::weights {
namespace {

Status CheckTensor(const PlannedTensor& tensor, const Manifest& source) {
  REFIT_ASSIGN_OR_RETURN(const ByteCount size, SizeOf(tensor.spec));
  if (size != tensor.size) {
    return InvalidArgument(StrCat("tensor ", tensor.spec.name, " is planned with ", tensor.size, " bytes, has ", size));
  }
  ByteCount covered = 0;
  for (const PlannedCopy& copy : tensor.copies) {
    if (copy.source >= source.tensor_count()) {
      return InvalidArgument(
          StrCat("tensor ", tensor.spec.name, " copies from source ", copy.source, " of ", source.tensor_count()));
    }
    const auto source_end = CheckedAdd(copy.source_offset, copy.size);
    if (!source_end.has_value() || *source_end > source.size(copy.source)) {
      return InvalidArgument(StrCat("tensor ", tensor.spec.name, " copies ", copy.size, " bytes at ",
                                    copy.source_offset, " of ", source.tensors()[copy.source].name, ", which has ",
                                    source.size(copy.source)));
    }
    if (copy.target_offset != covered || copy.size == 0 || copy.size > size - covered) {
      return InvalidArgument(StrCat("tensor ", tensor.spec.name, " is covered up to byte ", covered, " of ", size,
                                    ", then comes a copy of ", copy.size, " bytes to ", copy.target_offset));
    }
    covered += copy.size;
  }
  if (covered != size) {
    return InvalidArgument(StrCat("tensor ", tensor.spec.name, " is covered up to byte ", covered, " of ", size));
  }
  return OkStatus();
}

}  // namespace

ReshardPlan MakeFullPlan(const Manifest& source) {
  ReshardPlan plan;
  plan.tensors.reserve(source.tensor_count());
  for (std::size_t i = 0; i < source.tensor_count(); ++i) {
    PlannedTensor tensor{.spec = source.tensors()[i], .size = source.size(i), .copies = {}};
    if (tensor.size > 0) {
      tensor.copies.push_back({.source = i, .source_offset = 0, .target_offset = 0, .size = tensor.size});
    }
    plan.tensors.push_back(std::move(tensor));
  }
  return plan;
}

Status CheckPlan(const ReshardPlan& plan, const Manifest& source) {
  for (const PlannedTensor& tensor : plan.tensors) {
    REFIT_RETURN_IF_ERROR(CheckTensor(tensor, source));
  }
  return OkStatus();
}

}  // namespace refit::weights
