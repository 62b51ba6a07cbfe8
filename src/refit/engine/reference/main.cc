// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// refit-engine: an inference engine with SGLang's weight-update contract, on the CPU, for testing pipelines.

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "refit/engine/reference/faults.h"
#include "refit/engine/reference/server.h"
#include "refit/engine/reference/server_engine.h"

namespace refit::engine::reference {
namespace {

constexpr int kConfigurationError = 2;
constexpr int kDeathExit = 137;  // what SGLang's process ends with

struct Flags {
  EngineOptions engine;
  ServerOptions server;
  std::string admin_key_file;
  std::vector<std::string> faults;
  double crash_hang_seconds = 5.0;
  double health_wait_seconds = 1.0;
  double health_timeout_seconds = 20.0;
  double pause_poll_seconds = 1.0;
};

void Declare(CLI::App& app, Flags& flags) {
  using Family = sync::SessionFamily;
  static const std::map<std::string, Family> kFamilies = {{"a", Family::kA}, {"b", Family::kB}, {"c", Family::kC}};
  static const std::map<std::string, LoadSource> kSources = {{"auto", LoadSource::kCheckpoint},
                                                             {"dummy", LoadSource::kDummy}};
  app.add_option("--model", flags.engine.model_folder, "checkpoint folder in Hugging Face layout")->required();
  app.add_option("--tp", flags.engine.tp_size, "tensor-parallel ranks (threads)")->capture_default_str();
  app.add_option("--host", flags.server.host, "address to listen on")->capture_default_str();
  app.add_option("--port", flags.server.port, "port; 0 takes a free one")->capture_default_str();
  app.add_option("--family", flags.engine.family,
                 "session family: a has no sessions, b dies on a wrong call, c refuses it")
      ->transform(CLI::CheckedTransformer(kFamilies).description("{a,b,c}"));
  app.add_option("--load-format", flags.engine.load_source, "auto: the checkpoint's weights; dummy: random ones")
      ->transform(CLI::CheckedTransformer(kSources).description("{auto,dummy}"));
  app.add_option("--random-seed", flags.engine.random_seed, "seed of dummy weights")->capture_default_str();
  app.add_option("--api-key", flags.server.keys.api_key, "key for /generate and the information routes");
  auto* admin = app.add_option("--admin-api-key", flags.server.keys.admin_key, "key for every control route");
  app.add_option("--admin-api-key-file", flags.admin_key_file, "file whose first line is the admin key")
      ->excludes(admin);
  app.add_flag_callback(
      "--enable-memory-saver", [&flags] { flags.engine.memory_saver = EngineOptions::MemorySaver::kOn; },
      "release_memory_occupation really drops the weights");
  app.add_option("--served-version", flags.engine.version, "version to report (default: one of the family)");
  app.add_option("--crash-hang-seconds", flags.crash_hang_seconds, "how long the port hangs before a death ends")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--health-wait-seconds", flags.health_wait_seconds, "how long /health always takes")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--health-timeout-seconds", flags.health_timeout_seconds, "after which a paused engine answers 503")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--pause-poll-seconds", flags.pause_poll_seconds, "how often an abort pause looks for requests")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--fault", flags.faults, "misbehave, see below (repeatable)");
  app.add_option("--fault-file", flags.server.fault_file,
                 "more of these, one a line, read again at each call; FILE.hits tells which happened");
  app.footer(FaultHelp() +
             "\nExample: an engine of family c with three ranks and random weights that dies in its second update\n"
             "  refit-engine --model SmolLM2-135M --tp 3 --family c --load-format dummy --fault die:update:2\n");
}

Status Complete(Flags& flags) {
  flags.engine.crash_hang = FromSeconds(flags.crash_hang_seconds);
  flags.engine.health_wait = FromSeconds(flags.health_wait_seconds);
  flags.engine.health_timeout = FromSeconds(flags.health_timeout_seconds);
  flags.engine.pause_poll = FromSeconds(flags.pause_poll_seconds);
  flags.engine.end_process = [] { std::_Exit(kDeathExit); };
  for (const std::string& spec : flags.faults) {
    REFIT_ASSIGN_OR_RETURN(const Fault fault, ParseFault(spec));
    flags.server.faults.push_back(fault);
  }
  if (!flags.admin_key_file.empty()) {
    std::ifstream file(flags.admin_key_file);
    if (!std::getline(file, flags.server.keys.admin_key) || flags.server.keys.admin_key.empty()) {
      return InvalidArgument("--admin-api-key-file " + flags.admin_key_file + ": no key in it",
                             "the first line is the key");
    }
  }
  return OkStatus();
}

int Fail(const Status& status) {
  std::fprintf(stderr, "refit-engine: %s\n", status.ToString().c_str());
  return kConfigurationError;
}

int Main(int argc, char** argv) {
  // Blocked before any thread starts, so that sigwait below is the only one who gets them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  CLI::App app("An inference engine with SGLang's weight-update HTTP contract, on the CPU, for testing pipelines.",
               "refit-engine");
  Flags flags;
  Declare(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kConfigurationError;
  }
  if (const Status status = Complete(flags); !status.ok()) {
    return Fail(status);
  }
  const auto engine = ReferenceEngine::Make(flags.engine);
  if (!engine.has_value()) {
    return Fail(engine.status());
  }
  const auto server = ReferenceServer::Start(**engine, flags.server);
  if (!server.has_value()) {
    return Fail(server.status());
  }
  std::printf("refit-engine: ready url=http://%s:%d pid=%d\n", flags.server.host.c_str(), (*server)->port(), getpid());
  std::fflush(stdout);
  int received = 0;
  sigwait(&signals, &received);
  return 0;
}

}  // namespace
}  // namespace refit::engine::reference

int main(int argc, char** argv) { return refit::engine::reference::Main(argc, argv); }
