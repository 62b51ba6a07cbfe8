// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What NIXL's ends tell each other, as text through our control channel. An address carries the agent's metadata and
// all of its exports, so a descriptor is believed only where the address that the link was bound to has it.
//
//   address     nixl:<agent>:<metadata in hex>;<export>;<export>…
//   descriptor  nixl:<agent>:<export>
//   export      <number>:<address in hex>:<size>:<dram | vram>:<GPU, 0 for dram>

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/transport/nixl/nixl_library.h"
#include "refit/transport/transport.h"

namespace refit::transport {

// A stretch of memory as NIXL names it; of the peer, hence no pointer.
struct NixlMemory {
  std::uintptr_t address = 0;
  ByteCount size = 0;
  int kind = kNixlDram;
  std::uint64_t gpu = 0;
};

using NixlExports = std::map<std::string, NixlMemory, std::less<>>;  // by the text of the descriptor

struct NixlAddress {
  std::string agent;
  std::string metadata;  // NIXL's own bytes
  NixlExports exports;
};

NixlMemory NameMemory(const device::Memory& memory);
std::string FormatNixlDescriptor(std::string_view agent, std::uint64_t number, const NixlMemory& memory);
std::string FormatNixlAddress(const NixlAddress& address);
Result<NixlAddress> ParseNixlAddress(std::string_view text);  // safe on text from outside

}  // namespace refit::transport
