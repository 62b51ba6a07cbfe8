// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <memory>

#include "refit/cli/command.h"
#include "refit/cli/report_text.h"
#include "refit/cli/role.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/read_history.h"

namespace refit::cli {
namespace {

constexpr Duration kDeadline = std::chrono::seconds(15);

struct Flags {
  Form form = Form::kText;
  ControllerFlags controller;
};

// A state directory is read here, whoever serves there or does not; without one a controller keeps its journal itself.
Result<control::History> Ask(const ControllerFlags& flags) {
  if (!flags.state_directory.empty()) {
    return runtime::ReadHistory(flags.state_directory);
  }
  REFIT_ASSIGN_OR_RETURN(const auto controller, FindForPeople(flags));
  return controller->GetHistory(kDeadline);
}

int RunHistory(const Flags& flags) {
  SetOnInterrupt(ExitIn(flags.form));
  const auto history = Ask(flags.controller);
  if (!history.has_value()) {
    return FailToFind(flags.form, history.status());
  }
  Print(flags.form == Form::kJson ? HistoryAsJson(*history) : HistoryAsText(*history));
  return kOk;
}

}  // namespace

Run AddHistory(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Show the versions of this run: who asked, when, who serves them, and what failed.");
  AddControllerFlags(app, flags->controller);
  AddFormFlag(app, flags->form);
  app.footer(
      "With --state-directory it needs no controller that lives. Requests that were refused before they began are not "
      "in it.\nExample:\n  refit history --state-directory /var/lib/refit/smol");
  return [flags] { return RunHistory(*flags); };
}

}  // namespace refit::cli
