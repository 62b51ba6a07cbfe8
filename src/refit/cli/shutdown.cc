// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <memory>

#include "refit/cli/command.h"
#include "refit/cli/role.h"
#include "refit/rpc/controller_rpc.h"

namespace refit::cli {
namespace {

constexpr Duration kDeadline = std::chrono::seconds(15);

struct Flags {
  Form form = Form::kText;
  ControllerFlags controller;
};

int RunShutdown(const Flags& flags) {
  SetOnInterrupt(ExitIn(flags.form));
  const auto controller = FindForPeople(flags.controller);
  if (!controller.has_value()) {
    return FailToFind(flags.form, controller.status());
  }
  const Status status = (*controller)->Shutdown(kDeadline);
  if (!status.ok()) {
    return Fail(flags.form, status.code() == StatusCode::kResourceExhausted ? kRefused : kFailed, status);
  }
  Print(flags.form == Form::kJson ? "{\"closed\": true}"
                                  : "Every link is closed. Engines go on as they are; the next sync links them again.");
  return kOk;
}

}  // namespace

Run AddShutdown(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Close every link between policy workers and engines; engines go on serving.");
  AddControllerFlags(app, flags->controller);
  AddFormFlag(app, flags->form);
  app.footer("Exit code 4: a sync is running.\nExample:\n  refit shutdown --controller 127.0.0.1:41233");
  return [flags] { return RunShutdown(*flags); };
}

}  // namespace refit::cli
