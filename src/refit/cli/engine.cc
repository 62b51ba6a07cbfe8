// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "refit/cli/command.h"
#include "refit/cli/role.h"
#include "refit/config/schema.h"
#include "refit/rpc/controller_rpc.h"

namespace refit::cli {
namespace {

using control::SlotAction;

struct Flags {
  Form form = Form::kText;
  ControllerFlags controller;
  std::uint32_t slot = 0;
  std::string grace = "30s";
  std::string deadline = "120s";
};

struct Action {
  std::string_view name;
  SlotAction action;
  std::string_view help;
  std::string_view done;
};
constexpr Action kActions[] = {
    {"add", SlotAction::kAdd, "Put a slot in service: a new number, or one that was drained.",
     "engine slot {} is in service: start `refit agent --slot {}` where none runs"},
    {"drain", SlotAction::kDrain, "Take a slot out of service; its engine's process goes on, paused.",
     "engine slot {} is drained: `refit engine add {}` takes it in again"},
    {"remove", SlotAction::kRemove, "Drain a slot, shut its engine down, and never use its number again in this run.",
     "engine slot {} is removed: stop its agent"},
    {"restart", SlotAction::kRestart, "Drain an engine, end it and launch it anew.",
     "engine {} is launched anew: it serves when it has the weights"},
};

int RunAction(const Flags& flags, const Action& action) {
  SetOnInterrupt(ExitIn(flags.form));
  rpc::SlotRequest request{.action = action.action, .slot = SlotIndex(flags.slot)};
  const auto grace = config::ParseDuration(flags.grace);
  const auto deadline = config::ParseDuration(flags.deadline);
  if (!grace.has_value() || !deadline.has_value()) {
    return Fail(
        flags.form, kUsage,
        grace.has_value() ? deadline.status().WithContext("--deadline") : grace.status().WithContext("--grace"));
  }
  request.grace = *grace;
  request.budget = *deadline;
  const auto controller = FindForPeople(flags.controller);
  if (!controller.has_value()) {
    return FailToFind(flags.form, controller.status());
  }
  const Status status = (*controller)->ActOnSlot(request);
  if (!status.ok()) {
    const bool refused =
        status.code() == StatusCode::kResourceExhausted || status.code() == StatusCode::kFailedPrecondition;
    return Fail(flags.form, refused ? kRefused : kFailed, status);
  }
  Print(flags.form == Form::kJson
            ? fmt::format(R"({{"slot": {}, "action": "{}", "done": true}})", flags.slot, action.name)
            : fmt::format(fmt::runtime(action.done), flags.slot, flags.slot));
  return kOk;
}

}  // namespace

Run AddEngine(CLI::App& app, const Invocation&) {
  app.description("Add, drain, remove or restart an engine while training goes on.");
  app.require_subcommand(1);
  app.footer(
      "Exit code 1: not done in time (it goes on: see refit status), or there is no such slot; 4: refused (a sync "
      "failed "
      "for good, something else is being done to the slot, its number is used up, or its engine is attached).\n"
      "Example:\n  refit engine add 2 --state-directory DIR\n"
      "  refit agent --config job.yaml --slot 2 --like 0 &\n  refit engine remove 0 --state-directory DIR --grace 10s");
  auto chosen = std::make_shared<const Action*>(nullptr);
  auto flags = std::make_shared<Flags>();
  for (const Action& action : kActions) {
    CLI::App* const child = app.add_subcommand(std::string(action.name), std::string(action.help));
    child->add_option("slot", flags->slot, "the engine's slot")->required();
    AddControllerFlags(*child, flags->controller);
    if (action.action != SlotAction::kAdd) {
      child->add_option("--grace", flags->grace, "until requests in flight there are aborted")->capture_default_str();
    }
    child->add_option("--deadline", flags->deadline, "until this command stops waiting")->capture_default_str();
    AddFormFlag(*child, flags->form);
    child->footer(fmt::format("Example:\n  refit engine {} 2 --controller 127.0.0.1:41233", action.name));
    child->callback([chosen, &action] { *chosen = &action; });
  }
  return [flags, chosen] { return RunAction(*flags, **chosen); };
}

}  // namespace refit::cli
