// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "refit/cli/command.h"
#include "refit/cli/role.h"
#include "refit/config/job_file.h"
#include "refit/runtime/controller_host.h"

namespace refit::cli {
namespace {

struct Flags {
  Form form = Form::kText;
  std::string config;
  std::string listen;
};

// The router of the job: the one that runs already, or the one to start.
Result<runtime::RouterOptions> MakeRouter(const config::JobOptions& job, const config::RouterJobOptions& router) {
  runtime::RouterOptions options;
  options.command = {.python = router.python,
                     .host = router.ip,
                     .port = static_cast<std::uint16_t>(router.port.value_or(0)),
                     .metrics_port = 0,
                     .policy = router.policy,
                     .request_timeout_seconds = router.request_timeout_seconds,
                     .worker_startup_timeout = router.worker_startup_timeout,
                     .api_key_file = router.api_key_file};
  options.owner = router.external ? runtime::RouterOwner::kSomebodyElse : runtime::RouterOwner::kController;
  if (!router.api_key_file.empty()) {
    REFIT_ASSIGN_OR_RETURN(options.api_key, ReadKey("sglang_router_config.api_key_file", router.api_key_file));
  }
  for (const config::EngineOptions& engine : job.engines) {
    if (!engine.api_key_file.empty()) {
      REFIT_ASSIGN_OR_RETURN(options.worker_keys[SlotIndex(engine.slot)],
                             ReadKey("engines[].api_key_file", engine.api_key_file));
    }
  }
  std::error_code error;
  options.log_path =
      job.state_directory.empty() || job.state_directory.starts_with("etcd://")
          ? (std::filesystem::temp_directory_path(error) / fmt::format("refit-router-{}.log", getpid())).string()
          : job.state_directory + "/router.log";
  return options;
}

int RunController(const Flags& flags) {
  SetOnInterrupt(ExitIn(flags.form));
  const auto job = config::ReadJobFile(flags.config);
  if (!job.has_value()) {
    return Fail(flags.form, kUsage, job.status());
  }
  runtime::ControllerHostOptions options;
  options.listen = flags.listen.empty() ? job->options.listen : flags.listen;
  options.state_directory = job->options.state_directory;
  options.takeover_after = job->options.takeover_after;
  options.profile = job->options.profile == config::ProfileChoice::kStrict ? sync::kStrict : sync::kResilient;
  for (const config::EngineOptions& engine : job->options.engines) {
    options.slots.emplace_back(engine.slot);
  }
  for (const config::PolicyOptions& policy : job->options.policies) {
    options.policy_ranks.emplace_back(policy.rank);
  }
  options.verify = job->options.verify == config::VerifyChoice::kAlways ? runtime::VerifyWhen::kAlways
                                                                        : runtime::VerifyWhen::kOnRequest;
  options.verify_deadline = job->options.deadlines.verify;
  options.stall_deadline = job->options.deadlines.stall;
  options.min_rate = job->options.min_rate;
  if (const config::GenerationOptions& generation = job->options.generation; generation.fault_tolerance) {
    options.use_fault_tolerance = true;
    options.health.interval = FromSeconds(*generation.check_interval);
    options.health.timeout = FromSeconds(*generation.check_timeout);
    options.health.first_wait = FromSeconds(*generation.check_first_wait);
    options.launch_deadline = job->options.deadlines.launch;
    options.catch_up_deadline = job->options.deadlines.sync;
  }
  if (job->options.generation.router.has_value()) {
    auto router = MakeRouter(job->options, *job->options.generation.router);
    if (!router.has_value()) {
      return Fail(flags.form, kUsage, router.status());
    }
    options.router = *std::move(router);
  }
  options.on_stop = [](int exit_code) { std::_Exit(exit_code); };  // nothing more may leave this process
  BeginRole("controller");
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is a full disk like any other: the journal is in doubt
  const auto host = runtime::ControllerHost::Start(options);
  if (!host.has_value()) {
    const bool in_doubt = host.status().code() == StatusCode::kDataLoss;
    return Fail(flags.form, in_doubt ? kInDoubt : kFailed, host.status());
  }
  return ServeUntilInterrupted(flags.form, {"controller", (*host)->address(), {}, (*host)->router_url()});
}

}  // namespace

Run AddController(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Run the controller: it decides, and never touches weights.");
  app.add_option("--config", flags->config, "the job's configuration file (docs/configuration.md)")->required();
  app.add_option("--listen", flags->listen,
                 "host:port instead of the file's controller.listen; port 0 takes a free one");
  AddFormFlag(app, flags->form);
  app.footer(
      "Exit codes 5 and 6: this controller may not act any more, since its journal is in doubt (5) or another one has "
      "taken over (6).\n"
      "Example:\n  refit controller --config job.yaml\n  # prints: refit controller: ready address=127.0.0.1:41233 "
      "pid=4711");
  return [flags] { return RunController(*flags); };
}

}  // namespace refit::cli
