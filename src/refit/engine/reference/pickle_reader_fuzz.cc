// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a payload: read as each format under each policy, never anything but a value or an error.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "refit/base/check.h"
#include "refit/engine/reference/payload_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using refit::engine::reference::GlobalPolicy;
  using refit::engine::reference::LoadFormat;
  using refit::engine::reference::PayloadView;
  const std::string_view pickle(reinterpret_cast<const char*>(data), size);
  for (const GlobalPolicy policy : {GlobalPolicy::kModulePrefixes, GlobalPolicy::kExactNames}) {
    for (const LoadFormat format : {LoadFormat::kNamedTensors, LoadFormat::kFlattenedBucket}) {
      const auto load = refit::engine::reference::ReadPayload(pickle, format, policy);
      if (!load.has_value()) {
        continue;
      }
      for (const PayloadView& tensor : load->tensors) {
        REFIT_CHECK(tensor.storage < load->storages.size(), "a tensor without a storage");
        const refit::ByteCount end = load->storages[tensor.storage].data_size;
        REFIT_CHECK(tensor.offset <= end && tensor.size <= end - tensor.offset, "a tensor outside its storage");
      }
    }
  }
  (void)refit::engine::reference::DecodeBase64(pickle);
  return 0;
}
