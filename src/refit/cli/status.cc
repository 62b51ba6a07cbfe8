// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <poll.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "refit/cli/command.h"
#include "refit/cli/report_text.h"
#include "refit/cli/role.h"
#include "refit/rpc/controller_rpc.h"

namespace refit::cli {
namespace {

constexpr Duration kDeadline = std::chrono::seconds(5);
constexpr int kWatchMilliseconds = 500;

struct Flags {
  Form form = Form::kText;
  ControllerFlags controller;
  bool watch = false;
};

int RunStatus(const Flags& flags) {
  SetOnInterrupt(ExitIn(flags.form));
  const auto place = PlaceOf(flags.controller, nullptr);
  if (!place.has_value()) {
    return Fail(flags.form, kUsage, place.status());
  }
  while (true) {
    const auto found = runtime::FindController(*place);
    if (!found.has_value()) {
      return Fail(flags.form, kFailed, found.status());
    }
    const auto report = rpc::ControllerClient::Connect(found->address)->GetStatus(kDeadline);
    if (!report.has_value()) {
      return Fail(flags.form, kFailed, report.status());
    }
    if (flags.form == Form::kJson || !flags.watch) {
      Print(flags.form == Form::kJson ? StatusAsJson(*report) : StatusAsText(*report));
      return kOk;
    }
    Print("\x1b[H\x1b[2J" + StatusAsText(*report));  // a cleared screen, until Ctrl-C
    poll(nullptr, 0, kWatchMilliseconds);
  }
}

}  // namespace

Run AddStatus(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Show who is registered, which version is published, and who serves it.");
  AddControllerFlags(app, flags->controller);
  auto* watch = app.add_flag("--watch", flags->watch, "show it again twice a second, until Ctrl-C");
  AddFormFlag(app, flags->form);
  app.get_option("--json")->excludes(watch);
  app.footer("Example:\n  refit status --controller 127.0.0.1:41233 --watch");
  return [flags] { return RunStatus(*flags); };
}

}  // namespace refit::cli
