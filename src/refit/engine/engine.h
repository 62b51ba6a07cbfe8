// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// An inference engine as refit sees it: who it is, the mutating calls of a session, what it holds. One adapter per kind
// of engine (engine/sglang drives SGLang and the reference engine, which speak one HTTP contract).
//
// Every call takes a deadline and ends by it. Nothing here retries, and nothing decides: peer::EngineAgent does.
// Thread: one call at a time, from any thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/engine/engine_payload.h"
#include "refit/sync/engine_call.h"
#include "refit/weights/rank_hashes.h"

namespace refit::engine {

struct EngineDescription {
  std::string version;  // "0.5.17", "0.5.17.dev30+g3003d70f6"
  sync::SessionFamily family = sync::SessionFamily::kA;
  std::uint32_t tp_size = 1;
  std::uint32_t dp_size = 1;
  std::uint32_t pp_size = 1;
  std::uint32_t ep_size = 1;
  std::uint32_t node_count = 1;
  std::uint32_t tokenizer_workers = 1;
  ParameterHashKind hash_kind = ParameterHashKind::kSha256Prefix;                        // of Checksums
  enum class MemorySaver : std::uint8_t { kOff, kOn } memory_saver = MemorySaver::kOff;  // memory can be released
  std::string model_path;
  std::string quantization;           // empty: none
  std::string speculative_algorithm;  // empty: none
  std::string kv_storage;             // where its KV cache outlives a flush; empty: nowhere
  std::string weight_version;         // the label; a hint, never evidence (RC-VER-05)
};

using weights::RankHashes;

struct VersionSpan {  // tokens [begin, end) came from weights of this label
  std::string version;
  std::size_t begin = 0;
  std::size_t end = 0;
};
struct Generation {
  std::vector<std::int32_t> token_ids;
  std::string text;                   // empty where the engine has no tokenizer
  std::string weight_version;         // at the end of the request
  std::vector<VersionSpan> versions;  // none where the engine does not say
};
struct GenerateRequest {
  std::string text;                     // or
  std::vector<std::int32_t> token_ids;  // when text is empty
  std::uint32_t max_new_tokens = 16;
  double temperature = 0;  // 0: greedy
  std::uint64_t seed = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual Result<EngineDescription> Describe(Duration deadline) = 0;

  // Every mutating operation but update. `label` is for kLabel.
  virtual sync::Answer Call(sync::Operation operation, WeightVersion label, Duration deadline) = 0;
  virtual sync::Answer Update(const UpdateCall& call, Duration deadline) = 0;

  // Hashes of every parameter on every rank.
  virtual Result<std::vector<RankHashes>> Checksums(Duration deadline) = 0;
  virtual Status Probe(Duration deadline) = 0;  // /health_generate
  // Requests that its schedulers run or have queued; those that are still on their way there do not count.
  virtual Result<std::uint64_t> RequestsInFlight(Duration deadline) = 0;
  virtual Result<Generation> Generate(const GenerateRequest& request, Duration deadline) = 0;
};

}  // namespace refit::engine
