// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// The one byte encoding of tensors that digests are taken over (D7), the same on every machine:
//   number  8 bytes, little-endian (dimensions in two's complement)
//   text    its length as a number, then its bytes
//   spec    name as text, dtype's torch name as text, count of dimensions as a number, each dimension as a number
//   digest  16 bytes: the high word, then the low word, each big-endian (the order in which it is printed)
// Every element delimits itself, so a sequence of them needs no separators.

#pragma once

#include <cstdint>
#include <string>

#include "refit/base/digest.h"
#include "refit/weights/tensor_spec.h"

namespace refit::weights {

void AppendNumber(std::uint64_t number, std::string& out);
void AppendSpec(const TensorSpec& spec, std::string& out);
void AppendDigest(const Digest& digest, std::string& out);

}  // namespace refit::weights
