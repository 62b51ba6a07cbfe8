// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A Hugging Face checkpoint folder: model.safetensors, or model.safetensors.index.json with its shards, mapped
// read-only; config.json. What it yields is checked: headers that lie, shards that escape the folder or are missing,
// tensors named twice are errors that name the file and the tensor.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/weights/manifest.h"
#include "refit/weights/model_config.h"

namespace refit::checkpoint {

// A mapped, immutable checkpoint. Thread: any, after Open. The bytes may vanish when somebody truncates a file: read
// them through device::GuardMapped.
class Checkpoint {
 public:
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& folder);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::string& folder() const { return folder_; }
  const weights::Manifest& manifest() const {
    return manifest_;
  }  // in model order (ExpectedTensors) where that is known, else file order
  Bytes bytes(std::size_t tensor) const { return bytes_[tensor]; }
  std::span<const Bytes> all_bytes() const { return bytes_; }

 private:
  Checkpoint() = default;
  struct Mapping;
  std::string folder_;
  weights::Manifest manifest_;
  std::vector<Bytes> bytes_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
};

// config.json of a folder. Errors name the file, the key and its value.
Result<weights::ModelConfig> ReadModelConfig(const std::string& folder);

}  // namespace refit::checkpoint
