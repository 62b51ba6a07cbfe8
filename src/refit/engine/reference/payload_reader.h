// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What one rank's payload says, from its pickle (docs/spec/sglang-wire.md §2.3, §2.9, §2.10): memory objects, and
// tensors in them. Checked as torch would: what it would raise on is an error here, with the exception's text.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/engine/reference/pickle_reader.h"
#include "refit/weights/tensor_spec.h"

namespace refit::engine::reference {

enum class LoadFormat : std::uint8_t { kNamedTensors, kFlattenedBucket };

// A POSIX object with torch's 64-byte header.
struct PayloadStorage {
  std::string shm_name;
  ByteCount data_size = 0;  // after the header
  std::int32_t uses = 0;    // how often the payload takes it: what its count loses when this rank lets go
};

struct PayloadView {
  weights::TensorSpec spec;
  std::size_t storage = 0;
  ByteCount offset = 0;  // bytes from the storage's data
  ByteCount size = 0;
};

struct RankLoad {
  std::vector<PayloadStorage> storages;  // distinct names
  std::vector<PayloadView> tensors;      // each inside its storage
};

Result<RankLoad> ReadPayload(std::string_view pickle, LoadFormat format, GlobalPolicy policy);

// Standard base64, padded, strict. Nothing on anything else.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace refit::engine::reference
