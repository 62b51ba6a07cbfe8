// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "refit/cli/command.h"
#include "refit/cli/report_text.h"
#include "refit/cli/role.h"
#include "refit/config/schema.h"
#include "refit/rpc/controller_rpc.h"

namespace refit::cli {
namespace {

struct Flags {
  Form form = Form::kText;
  ControllerFlags controller;
  std::optional<std::uint32_t> engine;
  std::string model;
  std::string deadline = "120s";
};

int RunVerify(const Flags& flags) {
  SetOnInterrupt(ExitIn(flags.form));
  const auto deadline = config::ParseDuration(flags.deadline);
  if (!deadline.has_value()) {
    return Fail(flags.form, kUsage, deadline.status().WithContext("--deadline"));
  }
  rpc::VerifyRequest request;
  request.slot = flags.engine.has_value() ? std::int64_t{*flags.engine} : -1;
  request.model = flags.model;
  request.budget = *deadline;
  const auto controller = FindForPeople(flags.controller);
  if (!controller.has_value()) {
    return FailToFind(flags.form, controller.status());
  }
  const auto report = (*controller)->Verify(request);
  if (!report.has_value()) {
    return Fail(flags.form, kFailed, report.status());
  }
  if (report->engines.empty() && !report->status.ok() && !report->unproven) {
    return Fail(flags.form, kFailed, report->status);
  }
  Print(flags.form == Form::kJson ? VerifyAsJson(*report) : VerifyAsText(*report));
  return report->verified ? kOk : kNotVerified;
}

}  // namespace

Run AddVerify(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Prove which bytes the engines serve: every parameter's hash, on every rank.");
  AddControllerFlags(app, flags->controller);
  app.add_option("--engine", flags->engine, "this slot only (default: every engine)");
  app.add_option("--model", flags->model, "compare with this checkpoint instead of the published version");
  app.add_option("--deadline", flags->deadline, "for all of it")->capture_default_str();
  AddFormFlag(app, flags->form);
  app.footer(
      "Exit code 3 where anything differs, and where nobody knows what the version must hash to (unproven).\n"
      "Example:\n  refit verify --controller 127.0.0.1:41233\n"
      "  # verified: 6 ranks, 1092 parameters, 0 differences");
  return [flags] { return RunVerify(*flags); };
}

}  // namespace refit::cli
