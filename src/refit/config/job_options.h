// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The validated configuration of a job: what everything but the schema sees (RC-CFG-12). Plain values.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/time.h"
#include "refit/transport/nixl/nixl_options.h"

namespace refit::config {

// Where nothing else is said. A call costs SGLang milliseconds (settled D1), and its start minutes.
inline constexpr ByteCount kSglangLoadBytes = 512 * kMiB;
inline constexpr Duration kSglangLaunchDeadline = std::chrono::minutes(10);

enum class ProfileChoice : std::uint8_t { kResilient, kStrict };
enum class EngineChoice : std::uint8_t { kReference, kSglang, kAttach };
enum class BackendChoice : std::uint8_t { kSglang, kVllm };
enum class VerifyChoice : std::uint8_t { kAlways, kOnRequest };
enum class PauseChoice : std::uint8_t { kAbort, kRetract, kInPlace };

struct PolicyOptions {
  std::uint32_t rank = 0;
  std::string address;
  std::string source;
  std::string device;  // "cpu", "cuda:N"
};

struct EngineOptions {
  std::uint32_t slot = 0;
  EngineChoice kind = EngineChoice::kReference;
  std::uint32_t tp_size = 1;
  std::vector<std::string> args;
  std::string url;
  std::string api_key_file;
  std::string admin_api_key_file;
  ByteCount load_bytes = 0;
  std::vector<std::string> gpus;  // of each TP rank, as the agent numbers them
};

struct DeadlineOptions {
  Duration sync{};
  Duration update{};
  Duration call{};
  Duration launch{};
  Duration registration{};
  Duration verify{};
  Duration stall{};
};

// generation.sglang_router_config.
struct RouterJobOptions {
  bool external = false;
  std::string ip;
  std::optional<std::int64_t> port;  // none: a free one
  std::string policy;                // empty: the router's default
  std::int64_t request_timeout_seconds = 0;
  std::string api_key_file;
  std::string python;
  Duration worker_startup_timeout{};
};

// NeMo-RL's block, as far as it decides anything.
struct GenerationOptions {
  BackendChoice backend = BackendChoice::kSglang;
  bool colocated = false;
  std::optional<std::int64_t> gpus_per_node;
  std::optional<std::int64_t> gpus_per_engine;
  std::optional<std::int64_t> tp_size;
  std::int64_t dp_size = 1;
  std::int64_t pp_size = 1;
  std::int64_t ep_size = 1;
  std::string dtype;
  std::string quantization;
  bool needs_offload = false;
  PauseChoice pause = PauseChoice::kAbort;
  bool fault_tolerance = false;
  std::optional<double> check_interval;
  std::optional<double> check_timeout;
  std::optional<double> check_first_wait;
  std::optional<double> bucket_memory_ratio;
  std::optional<RouterJobOptions> router;
};

struct JobOptions {
  std::string name;
  ProfileChoice profile = ProfileChoice::kResilient;
  std::string listen;
  std::string state_directory;  // empty: none
  Duration takeover_after{};
  std::vector<PolicyOptions> policies;  // by rank
  std::vector<EngineOptions> engines;   // by slot
  VerifyChoice verify = VerifyChoice::kOnRequest;
  DeadlineOptions deadlines;
  std::string transport;                  // "auto", "shm", "cuda_ipc", "nixl", "ucx"
  bool stages = true;                     // transport.cuda_ipc.staging is "device"
  std::optional<ByteCount> bucket_bytes;  // of a transport with a link: its pieces
  ByteCount min_rate = 0;                 // per second; 0: nobody is judged by it
  transport::NixlOptions nixl;
  GenerationOptions generation;
};

}  // namespace refit::config
