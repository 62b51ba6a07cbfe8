// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a subcommand is: it declares its flags, and gives back the function that runs it. main.cc has the list of them.

#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace refit::cli {

// Settled D11.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;        // or configuration
inline constexpr int kNotVerified = 3;  // differences, or unproven
inline constexpr int kRefused = 4;      // latched or busy
inline constexpr int kInDoubt = 5;      // a controller's journal; and 6: taken over from (control/controller.h)
inline constexpr int kInterrupted = 130;

struct Invocation {
  std::string program_folder;             // where the refit binary lies, and refit-engine beside it
  std::vector<std::string> after_dashes;  // the words behind "--"
};

using Run = std::function<int()>;  // the exit code

// The invocation outlives the Run.
Run AddAgent(CLI::App& app, const Invocation& invocation);
Run AddBench(CLI::App& app, const Invocation& invocation);
Run AddConfig(CLI::App& app, const Invocation& invocation);
Run AddController(CLI::App& app, const Invocation& invocation);
Run AddDemo(CLI::App& app, const Invocation& invocation);
Run AddEngine(CLI::App& app, const Invocation& invocation);
Run AddDoctor(CLI::App& app, const Invocation& invocation);
Run AddHistory(CLI::App& app, const Invocation& invocation);
Run AddPolicy(CLI::App& app, const Invocation& invocation);
Run AddStatus(CLI::App& app, const Invocation& invocation);
Run AddSync(CLI::App& app, const Invocation& invocation);
Run AddVerify(CLI::App& app, const Invocation& invocation);
Run AddShutdown(CLI::App& app, const Invocation& invocation);

}  // namespace refit::cli
