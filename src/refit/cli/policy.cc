// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/policy_host.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "refit/cli/command.h"
#include "refit/cli/link_flags.h"
#include "refit/cli/role.h"

namespace refit::cli {
namespace {

constexpr Duration kRegisterDeadline = std::chrono::seconds(30);

struct Flags {
  Form form = Form::kText;
  std::string config;
  ControllerFlags controller;
  std::uint32_t rank = 0;
  std::string source;
  std::string listen;
  std::string device;
  std::string nixl_library;
};

Result<runtime::PolicyHostOptions> MakeOptions(const Flags& flags) {
  runtime::PolicyHostOptions options;
  options.rank = PolicyRank(flags.rank);
  options.register_deadline = kRegisterDeadline;
  std::string device = "cpu";
  std::optional<config::Job> job;
  if (!flags.config.empty()) {
    REFIT_ASSIGN_OR_RETURN(job, config::ReadJobFile(flags.config));
    const auto& policies = job->options.policies;
    const auto found = std::find_if(policies.begin(), policies.end(),
                                    [&](const config::PolicyOptions& policy) { return policy.rank == flags.rank; });
    if (found == policies.end()) {
      return InvalidArgument(fmt::format("--rank is {}, which {} does not list", flags.rank, flags.config),
                             "give a rank of its policies");
    }
    options.source = found->source;
    options.listen = found->address;
    device = found->device;
    options.register_deadline = job->options.deadlines.registration;
  }
  REFIT_ASSIGN_OR_RETURN(const runtime::ControllerPlace place,
                         PlaceOf(flags.controller, job.has_value() ? &*job : nullptr));
  options.controller = place.address;
  options.state_directory = place.state_directory;
  if (!flags.source.empty()) {
    options.source = flags.source;
  }
  if (!flags.listen.empty()) {
    options.listen = flags.listen;
  }
  REFIT_ASSIGN_OR_RETURN(options.gpu, ParseDevice("--device", flags.device.empty() ? device : flags.device));
  options.transports.nixl = NixlFrom(flags.nixl_library, job.has_value() ? &*job : nullptr);
  if (options.source.empty()) {
    return InvalidArgument("--source is missing", "give a checkpoint folder, or --config FILE");
  }
  return options;
}

int RunPolicy(const Flags& flags) {
  SetOnInterrupt(ExitIn(flags.form));
  auto options = MakeOptions(flags);
  if (!options.has_value()) {
    return Fail(flags.form, kUsage, options.status());
  }
  BeginRole(fmt::format("policy-{}", flags.rank));
  const auto host = runtime::PolicyHost::Start(*std::move(options));
  if (!host.has_value()) {
    return Fail(flags.form, kFailed, host.status());
  }
  return ServeUntilInterrupted(flags.form, {"policy", (*host)->address(), {}});
}

}  // namespace

Run AddPolicy(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Run a policy worker: it publishes a checkpoint as a trainer rank would its weights.");
  app.add_option("--rank", flags->rank, "trainer rank")->required();
  AddControllerFlags(app, flags->controller);
  app.add_option("--source", flags->source, "checkpoint folder that `refit sync --source policy-default` publishes");
  app.add_option("--listen", flags->listen, "host:port; port 0 takes a free one (default 127.0.0.1:0)");
  app.add_option("--device", flags->device, "where the weights are kept: cpu (default: mapped files), or cuda:N");
  app.add_option("--nixl-library", flags->nixl_library, "folder of the wheel nixl-cu13, or libnixl_capi.so itself");
  app.add_option("--config", flags->config, "the job's file; --rank picks its entry, other flags win over it");
  AddFormFlag(app, flags->form);
  app.footer("Example:\n  refit policy --rank 0 --controller 127.0.0.1:41233 --source models/smol");
  return [flags] { return RunPolicy(*flags); };
}

}  // namespace refit::cli
