// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format: 8 bytes of little-endian header length, a JSON header, tensor bytes.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/weights/tensor_spec.h"

namespace refit::checkpoint {

struct SafetensorsEntry {
  weights::TensorSpec spec;
  ByteCount begin = 0;  // from the start of the file
  ByteCount end = 0;
};

// Parses a file's bytes, header only; hostile input is expected. Entries in order of begin. Refuses a length beyond the
// file or over 100 MB, bad JSON, unknown dtypes, ranges that leave the file, overlap, leave holes, or disagree with
// shape and dtype.
Result<std::vector<SafetensorsEntry>> ParseSafetensors(Bytes file);

struct NamedTensor {
  weights::TensorSpec spec;
  Bytes bytes;
};
// Writes path atomically (a temporary file, then rename).
Status WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace refit::checkpoint
