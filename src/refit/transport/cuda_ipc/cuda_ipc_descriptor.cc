// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "refit/base/str.h"

namespace refit::transport {
namespace {

constexpr std::string_view kPrefix = "cuda_ipc";
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::size_t kHandleSize = 64;
constexpr std::size_t kUuidSize = 36;

std::string HexOf(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += kHexDigits[static_cast<unsigned char>(byte) >> 4U];
    text += kHexDigits[static_cast<unsigned char>(byte) & 15U];
  }
  return text;
}

bool ParseHex(std::string_view text, std::string& bytes) {
  if (text.size() != 2 * kHandleSize) {
    return false;
  }
  bytes.clear();
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const std::size_t high = kHexDigits.find(text[i]);
    const std::size_t low = kHexDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) {
      return false;
    }
    bytes += static_cast<char>(high << 4U | low);
  }
  return true;
}

bool IsUuid(std::string_view text) {
  if (text.size() != kUuidSize) {
    return false;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : kHexDigits.find(text[i]) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

// Plain decimal digits, no leading zero: one text per value.
bool ParseNumber(std::string_view text, ByteCount& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() &&
         (text[0] != '0' || text.size() == 1);
}

}  // namespace

Descriptor MakeCudaIpcDescriptor(const CudaIpcMemory& memory) {
  const device::GpuExport& exported = memory.exported;
  return {StrCat(kPrefix, ":", exported.gpu_uuid, ":", HexOf(exported.handle), ":", exported.allocation_size, ":",
                 exported.offset, ":", memory.size)};
}

Result<CudaIpcMemory> ParseCudaIpcDescriptor(const Descriptor& descriptor) {
  std::array<std::string_view, 6> parts;
  std::string_view rest = descriptor.text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = i + 1 < parts.size() ? rest.find(':') : rest.size();
    parts[i] = rest.substr(0, end);
    rest = end < rest.size() ? rest.substr(end + 1) : std::string_view();
  }
  CudaIpcMemory memory;
  device::GpuExport& exported = memory.exported;
  exported.gpu_uuid = parts[1];
  const bool well_formed = descriptor.text.size() <= 512 && parts[0] == kPrefix && IsUuid(parts[1]) &&
                           ParseHex(parts[2], exported.handle) && ParseNumber(parts[3], exported.allocation_size) &&
                           ParseNumber(parts[4], exported.offset) && ParseNumber(parts[5], memory.size);
  if (!well_formed || exported.offset > exported.allocation_size ||
      memory.size > exported.allocation_size - exported.offset) {
    return InvalidArgument("the descriptor names no memory that transport cuda_ipc exported",
                           "the peer uses another transport, or another version of refit");
  }
  return memory;
}

}  // namespace refit::transport
