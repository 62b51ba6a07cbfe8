// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/server_launch.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/engine/sglang/sglang_answer.h"
#include "refit/exec/clock.h"
#include "refit/observe/log.h"

namespace refit::engine::sglang {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(300);
constexpr Duration kPollDeadline = std::chrono::seconds(5);  // a server that comes up may be slow to answer
constexpr Duration kProgressInterval = std::chrono::seconds(10);

struct OwnArgument {
  std::string_view name;
  std::string_view remedy;
};
constexpr std::array kOwnArguments = {
    OwnArgument{"--port", "the agent takes a port that was not used before"},
    OwnArgument{"--host", "the agent's engine listens on 127.0.0.1"},
    OwnArgument{"--tp-size", "give it as the agent's --tp"},
    OwnArgument{"--tp", "give it as the agent's --tp"},
    OwnArgument{"--tensor-parallel-size", "give it as the agent's --tp"},
    OwnArgument{"--admin-api-key", "the agent makes a key for every launch"},
    OwnArgument{"--api-key", "give it as the agent's --api-key-file, so that no command line shows it"},
};

std::string WholeSeconds(Duration duration) {
  return StrCat(std::chrono::duration_cast<std::chrono::seconds>(duration).count(), " s");
}

}  // namespace

Status CheckServerArguments(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const std::string_view name = std::string_view(argument).substr(0, argument.find('='));
    const auto* const own = std::ranges::find(kOwnArguments, name, &OwnArgument::name);
    if (own != kOwnArguments.end()) {
      return InvalidArgument(StrCat("the engine's argument ", name, " is the agent's to give"),
                             std::string(own->remedy));
    }
  }
  return OkStatus();
}

std::string KeyFileText(std::string_view admin_key, std::string_view api_key) {
  std::string text = StrCat("admin-api-key: \"", admin_key, "\"\n");  // quoted: digits would be read as a number
  if (!api_key.empty()) {
    text += StrCat("api-key: \"", api_key, "\"\n");
  }
  return text;
}

ServerCommand MakeServerCommand(const ServerLaunch& launch) {
  ServerCommand command;
  command.arguments = {launch.python, "-m", "sglang.launch_server"};
  if (launch.python.find('/') == std::string::npos) {
    command.arguments.insert(command.arguments.begin(), "/usr/bin/env");
  }
  const bool has_config = std::ranges::any_of(launch.arguments, [](const std::string& argument) {
    return argument == "--config" || argument.starts_with("--config=");
  });
  std::vector<std::string> ours = {"--host",    "127.0.0.1",           "--port", StrCat(launch.port),
                                   "--tp-size", StrCat(launch.tp_size)};
  if (!has_config) {
    ours.insert(ours.end(), {"--config", launch.key_file});
  } else {
    ours.insert(ours.end(), {"--admin-api-key", launch.admin_key});
    if (!launch.api_key.empty()) {
      ours.insert(ours.end(), {"--api-key", launch.api_key});
    }
  }
  command.arguments.insert(command.arguments.end(), launch.arguments.begin(), launch.arguments.end());
  command.arguments.insert(command.arguments.end(), ours.begin(), ours.end());
  // Without both, a crashed server keeps its port open for 5 s to 65 s, and a call to it hangs as long.
  command.environment = {"SGLANG_PYSPY_DUMP_BEFORE_CRASH=false", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH=false"};
  return command;
}

Status ExplainEnd(std::string_view who, std::string_view exit_text, std::string_view last_output) {
  constexpr std::string_view kParserError = ": error: ";  // argparse: "PROGRAM: error: WORDS"
  const std::size_t error = last_output.rfind(kParserError);
  const bool refused = exit_text == "exit 2" && error != std::string_view::npos;
  if (REFIT_MUTANT("RC-CFG-16/pass-through", refused, false)) {
    return InvalidArgument(
        StrCat(who, " does not take its arguments: ", CapMessage(last_output.substr(error + kParserError.size()))),
        "python -m sglang.launch_server --help lists those of this version");
  }
  if (last_output.find("No module named sglang") != std::string_view::npos ||
      last_output.find("No module named 'sglang'") != std::string_view::npos) {
    return NotFound(StrCat(who, " cannot start: its Python has no SGLang"),
                    "name the Python that has it: --python PATH");
  }
  return Unavailable(StrCat(who, " ended (", exit_text, ") before it was ready: ", last_output));
}

Status AwaitServer(Engine& engine, std::string_view name, const std::function<bool()>& ended, Instant deadline) {
  const Instant start = exec::Now();
  Instant next_line = start + kProgressInterval;
  while (true) {
    if (ended()) {
      return Unavailable(StrCat(name, " ended before it answered"));
    }
    const Duration left = deadline - exec::Now();
    if (left <= Duration::zero()) {
      return DeadlineExceeded(StrCat(name, " did not answer within ", WholeSeconds(deadline - start)),
                              "give it more time, or fewer weights to load");
    }
    // /server_info and /model_info: both answer only once the weights are loaded.
    const auto description = engine.Describe(std::min(left, kPollDeadline));
    const StatusCode code = description.status().code();
    if (code == StatusCode::kOk || code == StatusCode::kFailedPrecondition || code == StatusCode::kPermissionDenied) {
      return description.status().WithContext(name);  // it answered; what it said may still be refused
    }
    if (exec::Now() >= next_line) {
      next_line += kProgressInterval;
      observe::LogInfo(StrCat("waiting for ", name, ": ", WholeSeconds(exec::Now() - start)));
    }
    exec::WaitUntil(ended, std::min(deadline, exec::Now() + kPollInterval));
  }
}

}  // namespace refit::engine::sglang
