// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/nixl/nixl_address.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "refit/base/str.h"

namespace refit::transport {
namespace {

constexpr std::string_view kPrefix = "nixl:";
constexpr std::size_t kMaxAddressSize = std::size_t{1} << 20;
constexpr std::size_t kMaxNameSize = 64;
constexpr std::uint64_t kMaxGpu = 1023;

// What stands before the next `mark`, or all of it; takes both off `text`.
std::string_view TakeUntil(std::string_view& text, char mark) {
  const std::string_view field = text.substr(0, text.find(mark));
  text.remove_prefix(std::min(text.size(), field.size() + 1));
  return field;
}

// Digits alone, as we write them: no sign, no leading zero.
template <typename Number>
bool ParseNumber(std::string_view text, Number& number, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size() && (text.size() == 1 || text.front() != '0');
}

bool IsName(std::string_view text) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !text.empty() && text.size() <= kMaxNameSize && std::all_of(text.begin(), text.end(), plain);
}

std::optional<NixlMemory> ParseExport(std::string_view text) {
  NixlMemory memory;
  std::uint64_t number = 0;
  const std::string_view digits = TakeUntil(text, ':');
  const std::string_view address = TakeUntil(text, ':');
  const std::string_view size = TakeUntil(text, ':');
  const std::string_view kind = TakeUntil(text, ':');
  if (!ParseNumber(digits, number, 10) || !ParseNumber(address, memory.address, 16) ||
      !ParseNumber(size, memory.size, 10) || !ParseNumber(text, memory.gpu, 10)) {
    return std::nullopt;
  }
  memory.kind = kind == "vram" ? kNixlVram : kNixlDram;
  const bool known = kind == "vram" || (kind == "dram" && memory.gpu == 0);
  const bool fits = memory.size > 0 && memory.size <= std::numeric_limits<std::uintptr_t>::max() - memory.address;
  return known && fits && memory.gpu <= kMaxGpu ? std::optional(memory) : std::nullopt;
}

std::string HexOf(std::uintptr_t value) {
  std::string text(2 * sizeof(value), '\0');
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value, 16);
  text.resize(static_cast<std::size_t>(result.ptr - text.data()));
  return text;
}

}  // namespace

NixlMemory NameMemory(const device::Memory& memory) {
  return {reinterpret_cast<std::uintptr_t>(memory.bytes.data()), memory.size(),
          memory.gpu.has_value() ? kNixlVram : kNixlDram, static_cast<std::uint64_t>(memory.gpu.value_or(0))};
}

std::string FormatNixlDescriptor(std::string_view agent, std::uint64_t number, const NixlMemory& memory) {
  return StrCat(kPrefix, agent, ":", number, ":", HexOf(memory.address), ":", memory.size, ":",
                memory.kind == kNixlVram ? "vram" : "dram", ":", memory.gpu);
}

std::string FormatNixlAddress(const NixlAddress& address) {
  const std::string head = StrCat(kPrefix, address.agent, ":");
  std::string text = StrCat(head, ToHex(AsBytes(address.metadata)));
  for (const auto& [descriptor, memory] : address.exports) {
    text += StrCat(";", std::string_view(descriptor).substr(head.size()));
  }
  return text;
}

Result<NixlAddress> ParseNixlAddress(std::string_view text) {
  const Status error = InvalidArgument("not an address of the nixl transport",
                                       "it reads nixl:<agent>:<metadata>;<export>…, as the peer's Address() says");
  if (text.size() > kMaxAddressSize || !text.starts_with(kPrefix)) {
    return error;
  }
  text.remove_prefix(kPrefix.size());
  NixlAddress address;
  address.agent = TakeUntil(text, ':');
  const std::string_view hex = TakeUntil(text, ';');
  std::optional<std::string> metadata = FromHex(hex);
  if (!IsName(address.agent) || !metadata.has_value() || metadata->empty()) {
    return error;
  }
  address.metadata = *std::move(metadata);
  while (!text.empty()) {
    const std::string_view item = TakeUntil(text, ';');
    const std::optional<NixlMemory> memory = ParseExport(item);
    if (!memory.has_value() || !address.exports.emplace(StrCat(kPrefix, address.agent, ":", item), *memory).second) {
      return error;
    }
  }
  return address;
}

}  // namespace refit::transport
