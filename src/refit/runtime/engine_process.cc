// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/engine_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/engine/process/port_list.h"
#include "refit/engine/sglang/server_launch.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"

namespace refit::runtime {
namespace {

// A file that only we can read: a key on a command line would be visible to every user.
Status WritePrivateFile(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) {
    return FailedPrecondition(StrCat("cannot write ", path), "give a run directory that can be written");
  }
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  return written ? OkStatus() : FailedPrecondition(StrCat("cannot write ", path), "free some disk space");
}

// Of one launch: it also fences calls that are meant for another life (RC-KILL-07).
std::string FreshKey() {
  return REFIT_MUTANT("RC-KILL-07/one-key-per-slot", ToHex(exec::RandomId()), std::string("the-key-of-this-slot"));
}

}  // namespace

EngineProcess::EngineProcess(const AgentHostOptions& options, std::uint32_t launch_number, std::string port_list)
    : options_(options),
      name_(StrCat(options.run_directory, "/engine-", options.slot, "-", launch_number)),
      port_list_(std::move(port_list)) {}

Result<engine::sglang::SglangOptions> EngineProcess::Launch(std::function<void(const std::string&)> on_end) {
  on_end_ = std::move(on_end);
  engine::sglang::SglangOptions reached{
      .url = {}, .admin_key = FreshKey(), .api_key = options_.api_key, .pause_mode = options_.pause_mode};
  const Status up = options_.kind == EngineKind::kSglang ? LaunchSglang(reached) : LaunchReference(reached);
  const bool over = state_.With([](const State& state) { return state.over; });
  if (over) {
    return Status(StatusCode::kCancelled, StrCat("engine ", options_.slot, " was ended while it was launched"));
  }
  REFIT_RETURN_IF_ERROR(up);
  return reached;
}

Status EngineProcess::LaunchReference(engine::sglang::SglangOptions& reached) {
  const std::string key_file = StrCat(name_, ".key");
  REFIT_RETURN_IF_ERROR(WritePrivateFile(key_file, reached.admin_key));
  REFIT_ASSIGN_OR_RETURN(const std::uint16_t port, engine::process::TakePort(port_list_));
  std::vector<std::string> arguments = {
      options_.engine_program, "--tp",  std::to_string(options_.tp_size), "--port", std::to_string(port),
      "--admin-api-key-file",  key_file};
  arguments.insert(arguments.end(), options_.engine_args.begin(), options_.engine_args.end());
  REFIT_ASSIGN_OR_RETURN(const Child child, Start({.arguments = std::move(arguments),
                                                   .environment = {},
                                                   .log_path = StrCat(name_, ".log"),
                                                   .ready_prefix = "refit-engine: ready url="}));
  const auto ready = child->WaitReady(exec::Now() + options_.launch_deadline);
  if (!ready.has_value()) {
    return ready.status().WithContext(StrCat("engine ", options_.slot, " did not come up"));
  }
  reached.url = ready->substr(0, ready->find(' '));
  return OkStatus();
}

Status EngineProcess::LaunchSglang(engine::sglang::SglangOptions& reached) {
  const std::string key_file = StrCat(name_, ".yaml");
  const std::string log = StrCat(name_, ".log");
  REFIT_RETURN_IF_ERROR(WritePrivateFile(key_file, engine::sglang::KeyFileText(reached.admin_key, options_.api_key)));
  REFIT_RETURN_IF_ERROR(WritePrivateFile(log, ""));  // the server logs its arguments, the key among them
  REFIT_ASSIGN_OR_RETURN(const std::uint16_t port, engine::process::TakePort(port_list_));
  engine::sglang::ServerCommand command = engine::sglang::MakeServerCommand({.python = options_.engine_program,
                                                                             .arguments = options_.engine_args,
                                                                             .tp_size = options_.tp_size,
                                                                             .port = port,
                                                                             .admin_key = reached.admin_key,
                                                                             .api_key = options_.api_key,
                                                                             .key_file = key_file});
  REFIT_ASSIGN_OR_RETURN(const Child child, Start({.arguments = std::move(command.arguments),
                                                   .environment = std::move(command.environment),
                                                   .log_path = log,
                                                   .ready_prefix = {}}));
  reached.url = StrCat("http://127.0.0.1:", port);
  REFIT_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> server, engine::sglang::ConnectSglang(reached));
  const std::string who = StrCat("engine ", options_.slot, " (SGLang, process ", child->pid(), ", log ", log, ")");
  const Status up = engine::sglang::AwaitServer(
      *server, who, [&child] { return !child->running(); }, exec::Now() + options_.launch_deadline);
  if (!child->running()) {
    return engine::sglang::ExplainEnd(who, child->exit_text(), child->LastOutput());
  }
  return up;
}

Result<EngineProcess::Child> EngineProcess::Start(engine::process::ChildOptions options) {
  options.on_end = on_end_;
  return state_.With([&options, this](State& state) -> Result<Child> {
    if (state.over) {
      return Status(StatusCode::kCancelled, StrCat("engine ", options_.slot, " was ended before it was started"));
    }
    REFIT_ASSIGN_OR_RETURN(engine::process::ChildProcess child, engine::process::ChildProcess::Start(options));
    state.child = std::make_shared<engine::process::ChildProcess>(std::move(child));
    return state.child;
  });
}

EngineProcess::Child EngineProcess::End() {
  return state_.With([](State& state) {
    state.over = true;
    return state.child;
  });
}

bool EngineProcess::ShutDown(Instant deadline) {
  const Child child = End();
  if (child != nullptr) {
    static_cast<void>(child->Terminate(deadline));
  }
  return child == nullptr || child->Kill();
}

bool EngineProcess::Kill(Instant deadline) {
  const Child child = End();
  return child == nullptr || child->Kill(deadline);
}

int EngineProcess::pid() const {
  const Child child = state_.With([](const State& state) { return state.child; });
  return child == nullptr ? 0 : child->pid();
}

}  // namespace refit::runtime
