// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/demo_fleet.h"

#include <fmt/format.h>
#include <signal.h>

#include <utility>

#include "refit/checkpoint/file.h"
#include "refit/checkpoint/json.h"
#include "refit/device/shared_memory.h"
#include "refit/exec/clock.h"

namespace refit::runtime {
namespace {

constexpr Duration kInterruptInterval = std::chrono::milliseconds(50);
constexpr Duration kStopDeadline = std::chrono::seconds(8);
constexpr Duration kRegisterDeadline = std::chrono::seconds(60);

// The first word of "127.0.0.1:4711 pid=12", or what follows `key`.
std::string FieldOf(const std::string& ready, const std::string& key) {
  const std::size_t begin = key.empty() ? 0 : ready.find(key);
  if (begin == std::string::npos) {
    return {};
  }
  const std::size_t end = ready.find(' ', begin + key.size());
  return ready.substr(begin + key.size(), end == std::string::npos ? end : end - begin - key.size());
}

}  // namespace

DemoFleet::DemoFleet(const DemoOptions& options, DemoPlan plan, std::function<bool()> interrupted)
    : options_(options),
      plan_(std::move(plan)),
      interrupted_(std::move(interrupted)),
      config_path_(options.logs_folder + "/job.yaml"),
      watcher_([this] {
        while (!watch_.Wait([](const Watch& watch) { return watch.over; }, exec::Now() + kInterruptInterval)) {
          if (interrupted_()) {
            watch_.With([](Watch& watch) {
              for (const int pid : std::exchange(watch.pids, {})) {
                kill(pid, SIGTERM);
              }
            });
          }
        }
      }) {}

DemoFleet::~DemoFleet() { Stop(); }

Status DemoFleet::WriteConfig() const {
  const std::string model = checkpoint::Quote(plan_.model_folder);  // a JSON string is a YAML string
  std::string text = fmt::format(
      "job: {{name: demo, profile: {}}}\nverify: always\ndeadlines: {{launch: {}s, register: 60s, update: 60s, call: "
      "30s}}\n"
      "policies:\n",
      options_.strict ? "strict" : "resilient",
      std::chrono::duration_cast<std::chrono::seconds>(options_.launch_deadline).count());
  for (std::uint32_t rank = 0; rank < plan_.policy_count; ++rank) {
    text += fmt::format("  - {{rank: {}, source: {}}}\n", rank, model);
  }
  if (options_.kill.has_value()) {
    // A death is heard of at once; probes only must not take a slow machine for a hung engine.
    text +=
        "generation: {use_fault_tolerance: true, rollout_health_check_interval: 5.0, rollout_health_check_timeout: "
        "10.0, rollout_health_check_first_wait: 0.0}\n";
  }
  text += "engines:\n";
  for (std::uint32_t slot = 0; slot < options_.engine_count; ++slot) {
    text += fmt::format("  - {{slot: {}, tp: {}, {}}}\n", slot, plan_.tp_size, EngineText(model));
  }
  return checkpoint::WriteFile(config_path_, text);
}

// Its kind and arguments. Random weights to begin with, and no tokenizer; idle schedulers would spin.
std::string DemoFleet::EngineText(const std::string& model) const {
  if (options_.kind == EngineKind::kReference) {
    return fmt::format("args: [--model, {}, --family, {}, --load-format, dummy]", model, options_.family);
  }
  std::string text = fmt::format(
      "kind: sglang, args: [--model-path, {}, --load-format, dummy, --skip-tokenizer-init, --sleep-on-idle", model);
  for (const std::string& argument : options_.engine_args) {
    text += ", " + checkpoint::Quote(argument);
  }
  return text + "]";
}

Status DemoFleet::Launch(const std::string& name, std::vector<std::string> arguments, const std::string& ready_prefix) {
  if (interrupted_()) {
    return {StatusCode::kCancelled, "interrupted"};
  }
  arguments.insert(arguments.begin(), options_.program);
  arguments.insert(arguments.end(), {"--config", config_path_});
  engine::process::ChildOptions options{.arguments = std::move(arguments),
                                        .environment = {},
                                        .log_path = fmt::format("{}/{}.log", options_.logs_folder, name),
                                        .ready_prefix = ready_prefix};
  auto child = engine::process::ChildProcess::Start(options);
  if (!child.has_value()) {
    return child.status().WithContext(name);
  }
  watch_.With([&child](Watch& watch) { watch.pids.push_back(child->pid()); });
  children_.push_back(*std::move(child));
  return OkStatus();
}

Result<std::string> DemoFleet::WaitReady(std::size_t child) {
  auto ready = children_[child].WaitReady(exec::Now() + options_.launch_deadline + kRegisterDeadline);
  if (!ready.has_value() && interrupted_()) {
    return Status(StatusCode::kCancelled, "interrupted");
  }
  return ready;
}

Status DemoFleet::Start() {
  REFIT_RETURN_IF_ERROR(WriteConfig());
  REFIT_RETURN_IF_ERROR(Launch("controller", {"controller"}, "refit controller: ready address="));
  REFIT_ASSIGN_OR_RETURN(const std::string controller_ready, WaitReady(0));
  controller_ = FieldOf(controller_ready, "");
  for (std::uint32_t rank = 0; rank < plan_.policy_count; ++rank) {
    REFIT_RETURN_IF_ERROR(Launch(fmt::format("policy-{}", rank),
                                 {"policy", "--rank", std::to_string(rank), "--controller", controller_},
                                 "refit policy: ready address="));
  }
  for (std::uint32_t slot = 0; slot < options_.engine_count; ++slot) {
    REFIT_RETURN_IF_ERROR(Launch(fmt::format("agent-{}", slot),
                                 {"agent", "--slot", std::to_string(slot), "--controller", controller_,
                                  options_.kind == EngineKind::kSglang ? "--python" : "--engine-program",
                                  options_.engine_program, "--run-directory", options_.logs_folder},
                                 "refit agent: ready address="));
  }
  for (std::size_t child = 1; child < children_.size(); ++child) {
    REFIT_ASSIGN_OR_RETURN(const std::string ready, WaitReady(child));
    if (const std::string url = FieldOf(ready, "engine="); !url.empty()) {
      engine_urls_.push_back(url);
    }
  }
  return OkStatus();
}

void DemoFleet::Stop() {
  if (!watcher_.joinable()) {
    return;
  }
  watch_.With([](Watch& watch) { watch.over = true; });
  watcher_.join();
  for (engine::process::ChildProcess& child : children_) {
    child.Ask();  // all at once, so that they end side by side
  }
  const Instant deadline = exec::Now() + kStopDeadline;
  for (engine::process::ChildProcess& child : children_) {
    static_cast<void>(child.Terminate(deadline));
  }
  children_.clear();
  device::SweepDeadOwners();  // of a role that had to be killed
}

}  // namespace refit::runtime
