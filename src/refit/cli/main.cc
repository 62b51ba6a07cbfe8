// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// refit: reads the command line, runs one subcommand. Thin: what a subcommand does stands in its own file.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "refit/cli/command.h"
#include "refit/cli/output.h"

namespace refit::cli {
namespace {

struct Subcommand {
  std::string_view name;
  Run (*add)(CLI::App& app, const Invocation& invocation);
};

// In the order of --help.
constexpr Subcommand kSubcommands[] = {
    {"demo", AddDemo},     {"controller", AddController}, {"agent", AddAgent},     {"policy", AddPolicy},
    {"sync", AddSync},     {"status", AddStatus},         {"history", AddHistory}, {"verify", AddVerify},
    {"engine", AddEngine}, {"shutdown", AddShutdown},     {"doctor", AddDoctor},   {"config", AddConfig},
    {"bench", AddBench},
};

std::string ProgramFolder(const char* argument) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (error ? std::filesystem::path(argument) : program).parent_path().string();
}

int Main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto dashes = std::find(words.begin(), words.end(), "--");
  Invocation invocation{.program_folder = ProgramFolder(argv[0]), .after_dashes = {}};
  if (dashes != words.end()) {
    invocation.after_dashes.assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
  }
  const Form form = std::find(words.begin(), words.end(), "--json") != words.end() ? Form::kJson : Form::kText;

  CLI::App app("Streams new weights from trainers into inference engines, and proves what each of them serves.",
               "refit");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 not verified, 4 refused (latched or busy), 130 "
      "interrupted.\n"
      "Example:\n  refit demo");
  std::vector<std::pair<CLI::App*, Run>> commands;
  for (const Subcommand& subcommand : kSubcommands) {
    CLI::App* const child = app.add_subcommand(std::string(subcommand.name));
    commands.emplace_back(child, subcommand.add(*child, invocation));
  }
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(words);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Fail(form, kUsage, InvalidArgument(error.what(), "see refit --help, refit COMMAND --help"));
  }
  for (const auto& [child, run] : commands) {
    if (child->parsed()) {
      if (!invocation.after_dashes.empty() && child->get_name() != "agent" && child->get_name() != "demo") {
        return Fail(
            form, kUsage,
            InvalidArgument("words behind -- are for the engine of refit agent and refit demo", "leave them out"));
      }
      return run();
    }
  }
  return kUsage;
}

}  // namespace
}  // namespace refit::cli

int main(int argc, char** argv) { return refit::cli::Main(argc, argv); }
