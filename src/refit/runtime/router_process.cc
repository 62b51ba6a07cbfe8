// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/router_process.h"

#include <algorithm>
#include <chrono>

#include "refit/base/str.h"
#include "refit/engine/process/child_process.h"
#include "refit/engine/process/port_list.h"
#include "refit/exec/clock.h"
#include "refit/observe/log.h"
#include "refit/rpc/agent_rpc.h"

namespace refit::runtime {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(100);
constexpr Duration kLongestPause = std::chrono::seconds(5);
constexpr Duration kSettled = std::chrono::seconds(10);  // who ran so long did not fail at its start
constexpr Duration kAskDeadline = std::chrono::milliseconds(500);
constexpr Duration kStopDeadline = std::chrono::seconds(1);  // requests in flight are cut off afterwards
constexpr Duration kForever = std::chrono::hours(24 * 365);

}  // namespace

RouterProcess::RouterProcess(router::RouterCommand command, std::string log_path, std::string port_list)
    : command_(std::move(command)),
      log_path_(std::move(log_path)),
      port_list_(std::move(port_list)),
      state_({.status = Unavailable("the router is being started")}),
      thread_([this] { Run(); }) {}

RouterProcess::~RouterProcess() {
  state_.With([](State& state) { state.over = true; });
  thread_.join();
}

void RouterProcess::Restart() {
  state_.With([](State& state) { state.silent = true; });
}

Status RouterProcess::status() const {
  return state_.With([](const State& state) { return state.status; });
}

int RouterProcess::pid() const {
  return state_.With([](const State& state) { return state.pid; });
}

void RouterProcess::Run() {
  const auto is_over = [](const State& state) { return state.over; };
  Duration pause = kFirstPause;
  while (!state_.With(is_over)) {
    const Instant began = exec::Now();
    const Status ended = RunOnce();
    if (state_.With(is_over)) {
      return;
    }
    pause = exec::Now() - began >= kSettled ? kFirstPause : pause;
    observe::LogWarning(StrCat("router ", router::Address(command_), ": ", ended.ToString()));
    state_.With([&ended](State& state) {
      state.status = ended;
      state.pid = 0;
    });
    state_.Wait(is_over, exec::Now() + pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

Status RouterProcess::RunOnce() {
  // Whoever has the port would be taken for ours, and its entries be deleted.
  if (!rpc::NobodyListens(router::Address(command_), kAskDeadline)) {
    return FailedPrecondition(StrCat("port ", command_.port, " is taken"),
                              "end what listens there, or give another sglang_router_port");
  }
  router::RouterCommand command = command_;
  REFIT_ASSIGN_OR_RETURN(command.metrics_port, engine::process::TakePort(port_list_));
  state_.With([](State& state) {
    state.ended = false;
    state.silent = false;
  });
  REFIT_ASSIGN_OR_RETURN(engine::process::ChildProcess child,
                         engine::process::ChildProcess::Start({.arguments = router::MakeArguments(command),
                                                               .environment = {},
                                                               .log_path = log_path_,
                                                               .ready_prefix = {},
                                                               .on_end = [this](const std::string&) {
                                                                 state_.With([](State& state) { state.ended = true; });
                                                               }}));
  observe::LogInfo(StrCat("router ", router::Address(command_), ": process ", child.pid(), ", log ", log_path_));
  state_.With([&child](State& state) {
    state.status = OkStatus();
    state.pid = child.pid();
  });
  state_.Wait([](const State& state) { return state.over || state.ended || state.silent; }, exec::Now() + kForever);
  if (state_.With([](const State& state) { return state.over; })) {
    return child.Terminate(exec::Now() + kStopDeadline);
  }
  if (child.running()) {
    child.Kill();
    return Unavailable("the router did not answer any more, and was ended");
  }
  return Unavailable(StrCat("the router ended, ", child.exit_text(), ": ", child.LastOutput()),
                     StrCat("see ", log_path_));
}

}  // namespace refit::runtime
