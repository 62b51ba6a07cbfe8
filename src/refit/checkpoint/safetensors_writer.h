// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes a safetensors file piece by piece, for checkpoints larger than memory.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/checkpoint/file.h"
#include "refit/weights/tensor_spec.h"

namespace refit::checkpoint {

class SafetensorsWriter {
 public:
  // Writes the header. Specs must be valid and have distinct names.
  static Result<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path,
                                                           const std::vector<weights::TensorSpec>& specs);
  // The tensors' bytes in the order of specs, in pieces of any size.
  Status Append(Bytes bytes);
  // Fails unless every byte has come; then the file appears under its path.
  Status Finish();

 private:
  SafetensorsWriter(std::unique_ptr<FileDraft> draft, ByteCount missing);
  std::unique_ptr<FileDraft> draft_;
  ByteCount missing_;
};

}  // namespace refit::checkpoint
