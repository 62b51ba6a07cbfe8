// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

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

// In place on a terminal. In a log a paragraph whenever something is different, and nothing else.
class Watcher {
 public:
  explicit Watcher(Form form) : form_(form), in_place_(form == Form::kText && isatty(STDOUT_FILENO) == 1) {
    if (in_place_) {
      Print("\x1b[2J");
    }
  }
  void Show(std::string text, const std::string& json) {
    if (form_ == Form::kJson) {
      return Print(json);
    }
    if (in_place_) {
      std::string clean = "\x1b[H";  // what was longer before leaves no rest
      for (const char c : text) {
        clean += c == '\n' ? "\x1b[K\n" : std::string(1, c);
      }
      text = clean + "\x1b[K\x1b[J";
    } else if (text == last_) {
      return;
    }
    Print(text);
    last_ = std::move(text);
  }

 private:
  const Form form_;
  const bool in_place_;
  std::string last_;
};

Result<rpc::FleetReport> AskStatus(const ControllerFlags& flags) {
  REFIT_ASSIGN_OR_RETURN(const auto controller, FindForPeople(flags));
  return controller->GetStatus(kDeadline);
}

int RunStatus(const Flags& flags) {
  SetOnInterrupt(flags.watch ? OnInterrupt::kExit : ExitIn(flags.form));
  std::optional<Watcher> watcher;
  while (true) {
    const auto report = AskStatus(flags.controller);
    if (!report.has_value() && !watcher.has_value()) {
      return FailToFind(flags.form, report.status());
    }
    if (!report.has_value()) {  // it was there: its successor is waited for
      watcher->Show(ErrorAsText(report.status()), ErrorAsJson(report.status(), {}));
      poll(nullptr, 0, kWatchMilliseconds);
      continue;
    }
    if (!flags.watch) {
      Print(flags.form == Form::kJson ? StatusAsJson(*report) : StatusAsText(*report, TerminalGlyphs()));
      return kOk;
    }
    if (!watcher.has_value()) {
      watcher.emplace(flags.form);
    }
    watcher->Show(StatusAsText(*report, TerminalGlyphs()), StatusAsJson(*report, Lines::kOne));
    poll(nullptr, 0, kWatchMilliseconds);
  }
}

}  // namespace

Run AddStatus(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Show who is registered, which version is published, and who serves it.");
  AddControllerFlags(app, flags->controller);
  app.add_flag("--watch", flags->watch, "show it twice a second, until Ctrl-C; in a log only when something changed");
  AddFormFlag(app, flags->form);
  app.footer(
      "With --json --watch: one object per line. Ctrl-C ends with 130.\nExample:\n  refit status --controller "
      "127.0.0.1:41233 --watch");
  return [flags] { return RunStatus(*flags); };
}

}  // namespace refit::cli
