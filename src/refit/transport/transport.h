// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How bytes cross between two processes (settled D9). The receiver pulls; announcements and releases go by the control
// channel, so identity (incarnation, attempt, sequence, length) is never in here. One conformance suite
// (tests/conformance/transport_suite.h) says what every backend keeps.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/memory.h"

namespace refit::transport {

// Names exported memory for a peer: opaque text of at most 512 bytes that only the same backend reads.
// Hostile until parsed.
struct Descriptor {
  std::string text;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

struct Range {
  ByteCount offset = 0;
  ByteCount size = 0;
};

using OpId = std::uint64_t;

enum class OpState : std::uint8_t { kPending, kDone, kFailed };

enum class FenceOutcome : std::uint8_t {
  kFenced,   // no operation of this link will write any more (RX-ASM-T2)
  kUnknown,  // one still may: its landing memory must not be reused
};

// One peer. Thread: one thread uses it; Close may come from any.
class Link {
 public:
  virtual ~Link() = default;

  // Starts reading range of the exported memory into `into` (exactly range.size bytes, alive until the operation ends).
  // Fails at once on a descriptor that is not the peer's, a range outside it, or memory that the backend cannot reach.
  virtual Result<OpId> Fetch(const Descriptor& descriptor, Range range, device::Memory into) = 0;
  // Every operation ends exactly once as kDone or kFailed, also after Close; error() says why it failed.
  virtual OpState Poll(OpId op) = 0;
  virtual Status error(OpId op) const = 0;
  // Waits until no operation of this link can write again.
  virtual FenceOutcome Fence(Instant deadline) = 0;
  // The exported memory itself, where the backend can map it (shm, cuda_ipc); valid while the link lives.
  // UNIMPLEMENTED where it cannot.
  virtual Result<device::Memory> MapInPlace(const Descriptor& descriptor) = 0;
  // Idempotent, returns at once; pending operations fail.
  virtual void Close() = 0;
};

// One end. Thread: any.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual bool can_map_in_place() const = 0;

  // Lets peers read memory, which must outlive the export. INVALID_ARGUMENT for memory that the backend cannot reach.
  virtual Result<Descriptor> Export(device::Memory memory) = 0;
  virtual void Unexport(const Descriptor& descriptor) = 0;  // unknown: nothing happens
  // Opens a link to the peer that Address() named there. UNAVAILABLE when nobody is there by the deadline.
  virtual Result<std::unique_ptr<Link>> Bind(std::string_view peer_address, Instant deadline) = 0;
  // For peers' Bind. Ask after Export: a backend may put what it exported into it (NIXL's metadata).
  virtual std::string Address() const = 0;
};

}  // namespace refit::transport
