// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The demo: a whole job on this machine, as child processes of the refit program. Engines, ours or SGLang's, start with
// random weights and are refitted three times; then every byte that they serve is proven. The text of a prompt becomes
// tokens here, and tokens become text here: an engine needs no tokenizer. No command line and no JSON in here.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/rpc/report.h"
#include "refit/runtime/agent_host.h"
#include "refit/runtime/traffic.h"

namespace refit::runtime {

struct DemoOptions {
  std::string program;                       // refit itself
  EngineKind kind = EngineKind::kReference;  // or kSglang
  std::string engine_program;                // refit-engine; kSglang: the Python that has SGLang
  std::vector<std::string> engine_args;      // kSglang: more arguments of its server
  std::string model_folder;                  // a checkpoint; or
  std::string random_shape;                  // a name of checkpoint::RandomShape, made in cache_folder
  std::string cache_folder;
  std::string logs_folder;    // made here
  std::uint32_t tp_size = 0;  // 0: the largest of 3, 2, 1 that divides the model
  std::uint32_t engine_count = 2;
  std::uint32_t policy_count = 0;  // 0: 2, or as many as profile strict needs
  bool strict = false;
  std::string family = "c";
  enum class After : std::uint8_t { kEnd, kKeepRunning } after = After::kEnd;  // kKeepRunning: until interrupted
  std::string prompt = "What is the capital of France?";
  std::optional<SlotIndex> kill;  // whose server is killed after the first refit, under traffic; engines are ours then
  Duration launch_deadline = std::chrono::seconds(90);
  Duration sync_deadline = std::chrono::seconds(120);
};

struct DemoText {
  std::string when;                  // "before", "after refit 1"
  std::vector<std::string> engines;  // what each engine said, by slot; token ids where there is no tokenizer
};

struct DemoRefit {
  std::string name;  // "real weights"
  rpc::SyncReport report;
  double ceiling_seconds = 0;  // the same bytes and loads, once per engine, by two copying threads; 0: not measured
};

struct DemoKill {
  SlotIndex slot;
  bool recovered = false;
  double time_to_return_seconds = 0;         // from the kill until it served the published version
  double launch_seconds = 0;                 // of that, its own launch
  std::vector<std::string> rebound_peers{};  // links that were opened meanwhile: "engine-1 policy-0"
  TrafficCounts traffic{};                   // from the kill to the end of the last refit, at every engine
};

struct DemoReport {
  std::string model;  // its folder
  std::uint32_t tp_size = 0;
  std::string controller;  // its address, while it runs
  std::string logs_folder;
  std::string timeline_path;
  std::vector<DemoText> texts;
  std::vector<DemoRefit> refits;
  std::optional<DemoKill> kill;
  rpc::VerifyReport verification;
};

// Ceiling over measured time: 1 is as fast as this memory. 0 where it was not measured.
double CeilingShare(const DemoRefit& refit);

// What happens, as it happens. Thread: the caller's of RunDemo.
class DemoSink {
 public:
  virtual ~DemoSink() = default;
  virtual void Line(const std::string& text) = 0;
  virtual void Text(const DemoText& text) = 0;
  virtual void Refit(const DemoRefit& refit) = 0;
  virtual void Progress(const rpc::SyncProgress& progress) = 0;
  virtual void Done(const DemoReport& report) = 0;  // everything is measured and proven; the roles still run
};

// "SGLang 0.5.23", asked of a Python without starting a server. NOT_FOUND where there is no such program, or it has
// none.
Result<std::string> FindSglang(const std::string& python, const std::string& logs_folder);

// Everything that it started is ended when it returns, and its shared memory removed, whatever happened. interrupted is
// asked often, from another thread: true ends the demo soon, as CANCELLED.
Result<DemoReport> RunDemo(const DemoOptions& options, DemoSink& sink, const std::function<bool()>& interrupted);

}  // namespace refit::runtime
