// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The demo's processes: one controller, policy workers and agents (which start their engines), as children of this one,
// each with a log file.

#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "refit/base/status.h"
#include "refit/engine/process/child_process.h"
#include "refit/exec/watched.h"
#include "refit/runtime/demo.h"

namespace refit::runtime {

// The sizes that the options left open, settled for one model.
struct DemoPlan {
  std::string model_folder;
  std::uint32_t tp_size = 0;
  std::uint32_t policy_count = 0;
};

// Thread: one. Its own second thread asks `interrupted` and then ends the children, so that whoever waits for one of
// them gets an error soon.
class DemoFleet {
 public:
  DemoFleet(const DemoOptions& options, DemoPlan plan, std::function<bool()> interrupted);
  ~DemoFleet();  // Stop()
  DemoFleet(const DemoFleet&) = delete;
  DemoFleet& operator=(const DemoFleet&) = delete;

  // Every role is ready and registered.
  Status Start();
  // Ends every process, engines included, and removes what shared memory the ended ones left. Idempotent.
  void Stop();

  const std::string& controller() const { return controller_; }
  const std::vector<std::string>& engine_urls() const { return engine_urls_; }

 private:
  struct Watch {
    std::vector<int> pids;
    bool over = false;
  };
  Status WriteConfig() const;
  std::string EngineText(const std::string& model) const;  // an entry of the job's file
  Status Launch(const std::string& name, std::vector<std::string> arguments, const std::string& ready_prefix);
  Result<std::string> WaitReady(std::size_t child);

  const DemoOptions& options_;
  const DemoPlan plan_;
  const std::function<bool()> interrupted_;
  const std::string config_path_;
  std::vector<engine::process::ChildProcess> children_;
  std::string controller_;
  std::vector<std::string> engine_urls_;
  exec::Watched<Watch> watch_;
  std::thread watcher_;
};

}  // namespace refit::runtime
