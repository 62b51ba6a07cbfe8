// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/cli/role.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "refit/cli/command.h"
#include "refit/observe/log.h"

namespace refit::cli {
namespace {

constexpr int kArenas = 2;

}  // namespace

void AddFormFlag(CLI::App& app, Form& form) {
  app.add_flag_callback("--json", [&form] { form = Form::kJson; }, "print exactly one JSON object, also on error");
}

void BeginRole(const std::string& name) {
  observe::SetLogRole(name);
  // gRPC has many threads, and glibc would give each an arena of freed memory: the soak saw 1 KiB more a refit.
  mallopt(M_ARENA_MAX, kArenas);
}

int ServeUntilInterrupted(Form form, const ReadyLine& ready) {
  SetOnInterrupt(OnInterrupt::kStop);
  if (form == Form::kJson) {
    Print(ReadyAsJson(ready));
  } else {
    Print(fmt::format("refit {}: ready address={} pid={}{}{}", ready.role, ready.address, getpid(),
                      ready.engine.empty() ? "" : " engine=" + ready.engine,
                      ready.router.empty() ? "" : " router=" + ready.router));
  }
  WaitForInterrupt();
  observe::LogInfo("asked to stop");
  return kOk;
}

void AddControllerFlags(CLI::App& app, ControllerFlags& flags) {
  auto* address = app.add_option("--controller", flags.address, "the controller's address");
  app.add_option("--state-directory", flags.state_directory,
                 "its state directory, or etcd://HOST:PORT/PREFIX, instead: finds the controller, and its successor")
      ->excludes(address);
}

Result<runtime::ControllerPlace> PlaceOf(const ControllerFlags& flags, const config::Job* job) {
  runtime::ControllerPlace place{.address = flags.address, .state_directory = flags.state_directory};
  if (job != nullptr && place.state_directory.empty()) {
    place.state_directory = job->options.state_directory;
  }
  if (place.address.empty() && place.state_directory.empty() && job != nullptr &&
      !job->options.listen.ends_with(":0")) {
    place.address = job->options.listen;
  }
  if (place.address.empty() && place.state_directory.empty()) {
    return InvalidArgument("--controller is missing",
                           "give the address that the controller's ready line shows, or its state directory, or a "
                           "fixed port as controller.listen");
  }
  return place;
}

Result<std::string> ReadKey(std::string_view name, const std::string& path) {
  std::ifstream file(path);
  std::string key;
  if (!std::getline(file, key) || key.empty()) {
    return InvalidArgument(fmt::format("{} {} holds no key", name, path), "its first line must be the key");
  }
  return key;
}

Result<std::unique_ptr<rpc::ControllerClient>> FindForPeople(const ControllerFlags& flags) {
  REFIT_ASSIGN_OR_RETURN(const runtime::ControllerPlace place, PlaceOf(flags, nullptr));
  REFIT_ASSIGN_OR_RETURN(const runtime::FoundController found, runtime::FindController(place));
  return rpc::ControllerClient::Connect(found.address);
}

int FailToFind(Form form, const Status& status) {
  return Fail(form, status.code() == StatusCode::kInvalidArgument ? kUsage : kFailed, status);
}

transport::NixlOptions NixlFrom(const std::string& flag, const config::Job* job) {
  transport::NixlOptions options = job == nullptr ? transport::NixlOptions() : job->options.nixl;
  if (!flag.empty()) {
    options.library = flag;
  }
  const char* const tls = std::getenv("UCX_TLS");
  options.ucx_tls = tls == nullptr ? "" : tls;
  return options;
}

}  // namespace refit::cli
