// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// engine-conformance: the engine cases against a real server.
//
//   engine-conformance --url URL --model DIR [--key KEY] [GoogleTest's flags]          a server that runs; no deaths
//   engine-conformance --python PYTHON --model DIR --tp N --log FILE [flags] -- ARGS   starts it, and one for each
//   death

#include <CLI/CLI.hpp>
#include <cstdio>

#include "refit/engine/process/child_process.h"
#include "refit/engine/process/port_list.h"
#include "refit/engine/sglang/server_launch.h"
#include "tests/conformance/engine_cases.h"
#include "tests/conformance/engine_deaths.h"

namespace refit::conformance {
namespace {

constexpr const char* kKey = "conformance";
constexpr Duration kLaunchDeadline = std::chrono::minutes(5);

struct Flags {
  std::string url;
  std::string key;
  std::string model;
  std::string python;
  std::string log = "engine-conformance.log";
  std::uint32_t tp_size = 1;
  std::vector<std::string> arguments;
};
Flags& TheFlags() {
  static Flags flags;
  return flags;
}

// Fills in what the server says about itself.
void Identify(Server& server) {
  const auto engine = engine::sglang::ConnectSglang({.url = server.url, .admin_key = server.admin_key});
  REFIT_CHECK(engine.has_value(), engine.status().message().c_str());
  const auto description = (*engine)->Describe(kPatience);
  REFIT_CHECK(description.has_value(), description.status().message().c_str());
  server.family = description->family;
  server.tp_size = description->tp_size;
  std::printf("server: SGLang %s, family %s, tp %u\n", description->version.c_str(),
              std::string(sync::ToString(description->family)).c_str(), description->tp_size);
}

class RunningServer final : public Server {
 public:
  RunningServer() {
    url = TheFlags().url;
    admin_key = TheFlags().key;
    model = TheFlags().model;
    Identify(*this);
  }
  bool ended() override { return false; }
};

class LaunchedServer final : public Server {
 public:
  LaunchedServer() {
    const Flags& flags = TheFlags();
    const auto port = engine::process::TakePort(flags.log + ".ports");
    REFIT_CHECK(port.has_value(), port.status().message().c_str());
    url = StrCat("http://127.0.0.1:", *port);
    admin_key = kKey;
    model = flags.model;
    std::vector<std::string> arguments = flags.arguments;
    arguments.insert(arguments.end(), {"--model-path", model});
    engine::sglang::ServerCommand command = engine::sglang::MakeServerCommand({.python = flags.python,
                                                                               .arguments = arguments,
                                                                               .tp_size = flags.tp_size,
                                                                               .port = *port,
                                                                               .admin_key = kKey,
                                                                               .key_file = KeyFile()});
    auto started = engine::process::ChildProcess::Start({.arguments = std::move(command.arguments),
                                                         .environment = std::move(command.environment),
                                                         .log_path = flags.log,
                                                         .ready_prefix = {}});
    REFIT_CHECK(started.has_value(), started.status().message().c_str());
    child_.emplace(*std::move(started));
    const auto engine = engine::sglang::ConnectSglang({.url = url, .admin_key = admin_key});
    const Status up = engine::sglang::AwaitServer(
        **engine, "the server", [this] { return !child_->running(); }, exec::Now() + kLaunchDeadline);
    REFIT_CHECK(up.ok(), StrCat(up.message(), ": ", child_->LastOutput()).c_str());
    Identify(*this);
  }
  bool ended() override { return !child_->running(); }

 private:
  static std::string KeyFile() {
    const std::string path = TheFlags().log + ".yaml";
    std::FILE* file = std::fopen(path.c_str(), "w");
    REFIT_CHECK(file != nullptr, "cannot write beside the log");
    std::fputs(engine::sglang::KeyFileText(kKey, "").c_str(), file);
    std::fclose(file);
    return path;
  }
  std::optional<engine::process::ChildProcess> child_;
};

std::shared_ptr<Server>& Shared() {
  static std::shared_ptr<Server> server;
  return server;
}

int Main(int argc, char** argv) {
  Flags& flags = TheFlags();
  CLI::App app("SGLang's weight-update contract, tried on a real server.", "engine-conformance");
  app.add_option("--url", flags.url, "a server that runs");
  app.add_option("--key", flags.key, "its admin key");
  app.add_option("--model", flags.model, "the checkpoint that it serves")->required();
  app.add_option("--python", flags.python, "start servers with this Python instead");
  app.add_option("--tp", flags.tp_size, "their tensor-parallel ranks");
  app.add_option("--log", flags.log, "their output");
  app.add_option("arguments", flags.arguments, "their arguments, behind --");
  testing::InitGoogleTest(&argc, argv);  // takes its flags out
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (flags.url.empty() == flags.python.empty()) {
    std::fputs("engine-conformance: give --url or --python\n", stderr);
    return 2;
  }
  const int result = RUN_ALL_TESTS();
  Shared().reset();  // ends the process before statics go
  return result;
}

}  // namespace

std::vector<Subject> Subjects() {
  const auto living = [] {
    std::shared_ptr<Server>& server = Shared();
    if (server == nullptr || server->ended()) {
      server = TheFlags().url.empty() ? std::shared_ptr<Server>(std::make_shared<LaunchedServer>())
                                      : std::make_shared<RunningServer>();
    }
    return server;
  };
  // One server at a time: two idle ones would fill a small machine.
  const auto victim = []() -> std::shared_ptr<Server> {
    Shared().reset();
    return TheFlags().url.empty() ? std::make_shared<LaunchedServer>() : nullptr;
  };
  return {{"Sglang", living, victim}};
}

}  // namespace refit::conformance

int main(int argc, char** argv) { return refit::conformance::Main(argc, argv); }
