// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// An agent process: owns one engine through all its incarnations, receives for
// it, registers it with the controller.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/memory.h"
#include "refit/sync/engine_call.h"
#include "refit/transport/transport_options.h"

namespace refit::runtime {

// Where an engine on GPUs reads a load: in memory of its own GPU that the agent
// filled, or where the sender packed it.
enum class Staging : std::uint8_t { kDevice, kNone };

enum class EngineKind : std::uint8_t { kReference, kSglang, kAttach };

struct AgentHostOptions {
  SlotIndex slot;
  std::string controller;         // address; empty: where state_directory says
  std::string state_directory{};  // of the controller; empty: none
  std::string listen = "127.0.0.1:0";
  EngineKind kind = EngineKind::kReference;
  std::uint32_t tp_size = 1;
  std::string engine_program;            // path of refit-engine; kSglang: the Python that
                                         // has SGLang
  std::vector<std::string> engine_args;  // --model DIR --family c …; kSglang: of sglang.launch_server
  std::string url{};                     // kAttach
  std::string admin_key{};               // kAttach; a launched engine gets a random one (C17)
  std::string api_key{};                 // of /generate and of what the server tells; kSglang:
                                         // demanded by it
  std::string run_directory;             // logs and key files of the engine
  ByteCount load_bytes = 4 * kMiB;       // settled D1: two of them stay in the last-level cache
  std::string transport = "auto";        // or "shm", "cuda_ipc", "nixl", "loopback"
  transport::TransportOptions transports{};
  ByteCount piece_bytes = 4 * kMiB;  // over a link
  // The GPU of each TP rank, as this process numbers them; empty: weights reach
  // the engine through host memory.
  std::vector<device::GpuOrdinal> gpus{};
  Staging staging = Staging::kDevice;
  sync::PauseMode pause_mode = sync::PauseMode::kAbort;
  Duration launch_deadline = std::chrono::seconds(60);
  Duration call_deadline = std::chrono::seconds(10);
  Duration update_deadline = std::chrono::seconds(20);
  Duration stall_deadline = std::chrono::seconds(30);  // of a transfer that brings nothing
  Duration register_deadline = std::chrono::seconds(30);
};

// INVALID_ARGUMENT where the engine's arguments hold one that is the agent's to
// give.
Status CheckEngineArguments(EngineKind kind, const std::vector<std::string>& arguments);

// Owns its threads, the service and the engine; the destructor ends them, the
// engine's processes included.
class AgentHost {
 public:
  // Sweeps shared memory of dead owners, brings the first incarnation up,
  // serves, registers. A later death is answered by a new incarnation, with a
  // growing pause between launches.
  static Result<std::unique_ptr<AgentHost>> Start(AgentHostOptions options);
  virtual ~AgentHost() = default;
  virtual const std::string& address() const = 0;
  virtual std::string engine_url() const = 0;
};

}  // namespace refit::runtime
