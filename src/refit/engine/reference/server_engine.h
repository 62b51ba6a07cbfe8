// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The engine behind the routes: ranks, scheduler, gate, session and label, and how it dies. Answers are plain values;
// routes_*.cc turn HTTP into calls of this class and back.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/checkpoint/tokenizer.h"
#include "refit/engine/reference/faults.h"
#include "refit/engine/reference/forward.h"
#include "refit/engine/reference/model.h"
#include "refit/engine/reference/payload_memory.h"
#include "refit/engine/reference/payload_reader.h"
#include "refit/engine/reference/scheduler.h"
#include "refit/engine/reference/scheduler_crew.h"
#include "refit/engine/reference/session.h"
#include "refit/engine/reference/session_gate.h"

namespace refit::engine::reference {

enum class LoadSource : std::uint8_t { kCheckpoint, kDummy };  // --load-format auto | dummy

struct EngineOptions {
  std::string model_folder;
  std::int64_t tp_size = 1;
  sync::SessionFamily family = sync::SessionFamily::kA;
  std::string version;  // empty: the family's
  LoadSource load_source = LoadSource::kCheckpoint;
  std::uint64_t random_seed = 0;
  enum class MemorySaver : std::uint8_t { kOff, kOn };
  MemorySaver memory_saver = MemorySaver::kOff;
  Duration pause_poll = std::chrono::seconds(1);
  Duration health_wait = std::chrono::seconds(1);
  Duration health_timeout = std::chrono::seconds(20);
  Duration crash_hang = std::chrono::seconds(5);
  std::function<void()> end_process;  // after a death's hang; tests watch it instead of dying
};

std::string_view DefaultVersion(sync::SessionFamily family);

struct UpdateRequest {
  std::vector<std::string> pickles;  // per rank
  std::optional<std::string> load_format;
  std::optional<std::string> weight_version;
  bool flush_cache = true;
  bool abort_all_requests = false;
};

class ReferenceEngine {
 public:
  // Loads the model; errors are configuration errors.
  static Result<std::unique_ptr<ReferenceEngine>> Make(EngineOptions options);
  ~ReferenceEngine();

  const EngineOptions& options() const { return options_; }
  const weights::ModelConfig& config() const { return ranks_.front().config(); }
  const checkpoint::Tokenizer* tokenizer() const { return tokenizer_.get(); }
  Scheduler& scheduler() { return *scheduler_; }
  Gate& gate() { return gate_; }

  // Control calls. A Reply of kDeath was not acted upon further: the caller Dies.
  void Pause(PauseMode mode);
  void Continue();
  Reply Flush(Duration timeout);
  Reply Begin();
  Reply End();
  Reply Update(const UpdateRequest& request);
  void SetLabel(const std::string& label);
  std::string label() const;
  void Abort(std::string_view rid_prefix);  // "": all, held ones included
  Reply Release(const std::vector<std::string>& tags);
  Reply Resume(const std::vector<std::string>& tags);

  Reply Snapshot();
  Reply ResetTensors();
  Reply Compare();
  std::vector<std::map<std::string, std::string>> Checksums();  // per rank
  Result<RankModel::HfRows> RowsByName(std::string_view name, std::size_t row_limit);

  // Death as measured: from now on nothing is answered; end_process runs after crash_hang. First reason wins.
  void Die(std::string_view why);
  bool dead() const { return dead_.load(); }
  // Returns when the engine is stopped: a caller that must never answer waits here.
  void Hang();
  // False when the engine was stopped meanwhile.
  bool Sleep(Duration duration);
  void Stop();  // releases every waiter; idempotent

 private:
  explicit ReferenceEngine(EngineOptions options);
  Status LoadModel();
  Reply Install(const UpdateRequest& request);
  Reply RunOnRanks(const std::function<Status(RankModel& rank, std::size_t index)>& work);

  std::vector<const RankModel*> rank_pointers() const;

  EngineOptions options_;
  std::vector<RankModel> ranks_;
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<checkpoint::Tokenizer> tokenizer_;
  std::unique_ptr<RankCrew> crew_;
  std::unique_ptr<Scheduler> scheduler_;
  Gate gate_;
  Session session_;  // touched only between steps, as the next one
  LoadMappings mappings_;
  std::uint64_t resets_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string label_ = "default";
  bool stopping_ = false;
  std::atomic<bool> dead_ = false;
  std::thread undertaker_;
};

}  // namespace refit::engine::reference
