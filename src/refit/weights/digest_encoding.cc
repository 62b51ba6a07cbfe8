// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/digest_encoding.h"

#include <string_view>

namespace refit::weights {
namespace {

void AppendText(std::string_view text, std::string& out) {
  AppendNumber(text.size(), out);
  out += text;
}

}  // namespace

void AppendNumber(std::uint64_t number, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) {
    out += static_cast<char>((number >> shift) & 0xff);
  }
}

void AppendSpec(const TensorSpec& spec, std::string& out) {
  AppendText(spec.name, out);
  AppendText(TorchName(spec.dtype), out);
  AppendNumber(spec.shape.size(), out);
  for (const std::int64_t dimension : spec.shape) {
    AppendNumber(static_cast<std::uint64_t>(dimension), out);
  }
}

void AppendDigest(const Digest& digest, std::string& out) {
  for (const std::uint64_t word : {digest.high, digest.low}) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      out += static_cast<char>((word >> shift) & 0xff);
    }
  }
}

}  // namespace refit::weights
