// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "refit/base/str.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/cli/cache.h"
#include "refit/cli/command.h"
#include "refit/cli/json_report.h"
#include "refit/cli/output.h"
#include "refit/cli/role.h"
#include "refit/config/schema.h"
#include "refit/runtime/bench_shm.h"

namespace refit::cli {
namespace {

constexpr std::uint64_t kSeed = 1;

struct Flags {
  Form form = Form::kText;
  std::string model;
  std::string shape;
  std::string load_bytes = "4MiB";
};

std::string AsText(const runtime::BenchShmReport& report) {
  return fmt::format(
      "{} tensors, {} bytes, {} update calls of at most {} bytes\n"
      "refit     {:.4f} s  {:.2f} GB/s  (without digests {:.4f} s)\n"
      "ceiling   {:.4f} s  {:.2f} GB/s  (two pinned threads, copy in and copy out, same memory, same run)\n"
      "ratio     {:.2f}",
      report.tensors, report.bytes, report.calls, report.load_bytes, report.seconds,
      static_cast<double>(report.bytes) / report.seconds / 1e9, report.seconds_no_digest, report.ceiling_seconds,
      static_cast<double>(report.bytes) / report.ceiling_seconds / 1e9, report.ratio());
}

// The folder of the model to send; a random one is kept for the next run.
Result<std::string> ModelFolder(const Flags& flags) {
  if (!flags.model.empty()) {
    return flags.model;
  }
  REFIT_ASSIGN_OR_RETURN(const weights::ModelConfig config, checkpoint::RandomShape(flags.shape));
  const std::string folder = StrCat(CacheFolder(), "/random/", flags.shape);
  REFIT_RETURN_IF_ERROR(checkpoint::WriteRandomCheckpoint(config, kSeed, folder));
  return folder;
}

int RunShm(const Flags& flags, const std::string& program_folder) {
  SetOnInterrupt(ExitIn(flags.form));
  const auto load_bytes = config::ParseBytes(flags.load_bytes);
  if (!load_bytes.has_value()) {
    return Fail(flags.form, kUsage, load_bytes.status().WithContext("--load-bytes"));
  }
  const auto model = ModelFolder(flags);
  if (!model.has_value()) {
    return Fail(flags.form, kFailed, model.status());
  }
  const std::string run_directory =
      (std::filesystem::temp_directory_path() / StrCat("refit-bench-", getpid())).string();
  const auto report = runtime::RunBenchShm({.model = *model,
                                            .engine_program = program_folder + "/refit-engine",
                                            .run_directory = run_directory,
                                            .load_bytes = *load_bytes},
                                           [](std::string_view line) { fmt::print(stderr, "bench: {}\n", line); });
  if (!report.has_value()) {
    return Fail(flags.form, kFailed, report.status().WithContext(StrCat("logs in ", run_directory)));
  }
  std::error_code ignored;
  std::filesystem::remove_all(run_directory, ignored);
  Print(flags.form == Form::kJson ? BenchShmAsJson(*report, flags.shape) : AsText(*report));
  return kOk;
}

}  // namespace

Run AddBench(CLI::App& app, const Invocation& invocation) {
  auto flags = std::make_shared<Flags>();
  app.description("Measure a transport beside the machine's own ceiling in the same run.");
  app.require_subcommand(1);
  CLI::App* const shm = app.add_subcommand("shm", "shared memory: one policy worker to one reference engine, TP 1");
  auto* const model = shm->add_option("--model", flags->model, "a Hugging Face checkpoint folder");
  shm->add_option("--random", flags->shape, "a random model instead: tiny, qwen3-0.6b, moe-18k")
      ->excludes(model)
      ->default_str("qwen3-0.6b");
  shm->add_option("--load-bytes", flags->load_bytes, "largest load, but for a tensor larger than that")
      ->capture_default_str();
  AddFormFlag(*shm, flags->form);
  shm->footer("Example:\n  refit bench shm --random qwen3-0.6b --json");
  return [flags, program_folder = invocation.program_folder] {
    if (flags->model.empty() && flags->shape.empty()) {
      flags->shape = "qwen3-0.6b";
    }
    return RunShm(*flags, program_folder);
  };
}

}  // namespace refit::cli
