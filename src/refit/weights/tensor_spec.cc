// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/tensor_spec.h"

#include <limits>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::weights {
namespace {

// A name for messages: whole where it can be one, never megabytes of a hostile one.
std::string_view Shown(const TensorSpec& spec) { return std::string_view(spec.name).substr(0, 200); }

}  // namespace

std::string ToString(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    out += StrCat(i == 0 ? "" : ", ", shape[i]);
  }
  return out + "]";
}

std::string ToString(const TensorSpec& spec) {
  return StrCat(spec.name, " ", TorchName(spec.dtype), ToString(spec.shape));
}

Result<ByteCount> SizeOf(const TensorSpec& spec) {
  if (spec.name.empty()) {
    return InvalidArgument(StrCat("a tensor of shape rank ", spec.shape.size(), " has no name"), "name every tensor");
  }
  if (REFIT_MUTANT("RC-BKT-14/no-name-length", spec.name.size() > kMaxNameLength, false)) {
    return InvalidArgument(StrCat("tensor name ", Shown(spec), "… is ", spec.name.size(), " bytes long"),
                           StrCat("use at most ", kMaxNameLength));
  }
  if (REFIT_MUTANT("RC-BKT-14/no-rank-limit", spec.shape.size() > kMaxRank, false)) {
    return InvalidArgument(StrCat("tensor ", Shown(spec), " has ", spec.shape.size(), " dimensions"),
                           StrCat("use at most ", kMaxRank));
  }
  // Zero dimensions count as one here: [0, 2^40, 2^40] is refused too, so products of any of its dimensions fit later.
  ByteCount product = ItemSize(spec.dtype);
  bool is_empty = false;
  for (const std::int64_t dimension : spec.shape) {
    if (REFIT_MUTANT("RC-BKT-14/no-negative-dims", dimension < 0, false)) {
      return InvalidArgument(StrCat("tensor ", Shown(spec), " has the dimension ", dimension), "send dimensions >= 0");
    }
    is_empty = is_empty || dimension == 0;
    const auto factor = static_cast<ByteCount>(dimension == 0 ? 1 : dimension);
    const auto next = REFIT_MUTANT("RC-BKT-14/no-overflow-check", CheckedMultiply(product, factor),
                                   std::optional<ByteCount>(product * factor));
    // 63 bits, so that the sum of two sizes still fits.
    if (!next.has_value() || REFIT_MUTANT("RC-BKT-14/no-overflow-check",
                                          *next > ByteCount{std::numeric_limits<std::int64_t>::max()}, false)) {
      return InvalidArgument(StrCat("tensor ", Shown(spec), " of shape ", ToString(spec.shape), " is too large"),
                             "send a shape whose bytes fit in 63 bits");
    }
    product = *next;
  }
  return is_empty ? ByteCount{0} : product;
}

}  // namespace refit::weights
