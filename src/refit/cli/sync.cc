// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>

#include "refit/cli/command.h"
#include "refit/cli/report_text.h"
#include "refit/cli/role.h"
#include "refit/config/schema.h"
#include "refit/observe/progress.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/request_id.h"

namespace refit::cli {
namespace {

constexpr std::string_view kPolicyDefault = "policy-default";

struct Flags {
  Form form = Form::kText;
  ControllerFlags controller;
  std::string source = std::string(kPolicyDefault);
  std::string deadline = "60s";
  std::string request_id;
};

// Refused before anything was touched: latched, or another sync runs (D11). One that ran tells of its engines: what it
// lacked, as room in /dev/shm, is no refusal.
bool IsRefusal(const rpc::SyncReport& report) {
  return (report.status.code() == StatusCode::kResourceExhausted && report.engines.empty()) ||
         (report.status.code() == StatusCode::kFailedPrecondition && report.latched);
}

int RunSync(const Flags& flags) {
  SetOnInterrupt(ExitIn(flags.form));
  auto deadline = config::ParseDuration(flags.deadline);
  if (!deadline.has_value()) {
    return Fail(flags.form, kUsage, deadline.status().WithContext("--deadline"));
  }
  const auto place = PlaceOf(flags.controller, nullptr);
  if (!place.has_value()) {
    return Fail(flags.form, kUsage, place.status());
  }
  rpc::SyncRequest request;
  request.request_id = flags.request_id.empty() ? runtime::NewRequestId() : flags.request_id;
  request.source = flags.source == kPolicyDefault ? std::string() : flags.source;
  request.budget = *deadline;

  Result<rpc::SyncReport> report = Internal("no answer yet");
  {
    observe::ProgressLine line(ProgressStyleFor(flags.form), TerminalGlyphs());
    report = runtime::SyncWithSuccessors(*place, request, [&line](const rpc::SyncProgress& progress) {
      line.Show({progress.phase, progress.bytes_delivered, progress.bytes_total});
    });
  }
  if (!report.has_value()) {
    return Fail(flags.form, kFailed, report.status());
  }
  if (!report->status.ok()) {
    return Fail(flags.form, IsRefusal(*report) ? kRefused : kFailed, report->status, ResiduesOf(*report));
  }
  Print(flags.form == Form::kJson ? SyncAsJson(*report) : SyncAsText(*report));
  return kOk;
}

}  // namespace

Run AddSync(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Refit: bring every engine to a new version of the weights.");
  AddControllerFlags(app, flags->controller);
  app.add_option("--source", flags->source, "policy-default, or a checkpoint folder that every policy worker can read")
      ->capture_default_str();
  app.add_option("--deadline", flags->deadline, "for the whole sync")->capture_default_str();
  app.add_option("--request-id", flags->request_id, "asked again with the same one, a sync that ran is not run twice");
  AddFormFlag(app, flags->form);
  app.footer("Example:\n  refit sync --controller 127.0.0.1:41233 --source policy-default");
  return [flags] { return RunSync(*flags); };
}

}  // namespace refit::cli
