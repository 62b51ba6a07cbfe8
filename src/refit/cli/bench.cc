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
#include "refit/cli/link_flags.h"
#include "refit/cli/output.h"
#include "refit/cli/role.h"
#include "refit/config/schema.h"
#include "refit/runtime/bench_link.h"
#include "refit/runtime/bench_shm.h"

namespace refit::cli {
namespace {

constexpr std::uint64_t kSeed = 1;

struct Flags {
  Form form = Form::kText;
  std::string model;
  std::string shape;
  std::string load_bytes = "4MiB";
  std::string transport = "cuda_ipc";
  std::string from = "cpu";
  std::string into = "cpu";
  std::string piece_bytes;
  std::string nixl_library;
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

std::string AsText(const runtime::BenchLinkReport& report) {
  return fmt::format(
      "{} tensors, {} bytes, {} pieces of at most {} bytes\n"
      "refit     {:.2f} ms  {:.1f} GB/s  (of it {:.2f} ms from the first announcement to the last byte)\n"
      "ceiling   {:.2f} ms  {:.1f} GB/s  (one read of the same bytes over the same link, same run)\n"
      "ratio     {:.2f}",
      report.tensors, report.bytes, report.pieces, report.piece_bytes, report.seconds * 1e3,
      static_cast<double>(report.bytes) / report.seconds / 1e9, report.link_seconds() * 1e3,
      report.ceiling_seconds * 1e3, static_cast<double>(report.bytes) / report.ceiling_seconds / 1e9, report.ratio());
}

Result<runtime::BenchLinkOptions> LinkOptions(const Flags& flags, const std::string& program_folder) {
  runtime::BenchLinkOptions options;
  options.transport = flags.transport;
  options.transports.nixl = NixlFrom(flags.nixl_library, nullptr);
  REFIT_ASSIGN_OR_RETURN(options.into, ParseDevice("--into", flags.into));
  REFIT_RETURN_IF_ERROR(ParseDevice("--from", flags.from).status());
  REFIT_ASSIGN_OR_RETURN(options.piece_bytes, ParsePieceBytes(!flags.piece_bytes.empty() ? flags.piece_bytes
                                                              : options.into.has_value() ? "64MiB"
                                                                                         : "4MiB"));
  REFIT_ASSIGN_OR_RETURN(options.model, ModelFolder(flags));
  options.source_command = {
      program_folder + "/refit", "bench",           "link-source", "--model", options.model, "--from", flags.from,
      "--nixl-library",          flags.nixl_library};
  if (flags.nixl_library.empty()) {
    options.source_command.resize(options.source_command.size() - 2);
  }
  options.log_path = (std::filesystem::temp_directory_path() / StrCat("refit-bench-link-", getpid(), ".log")).string();
  return options;
}

int RunLink(const Flags& flags, const std::string& program_folder) {
  SetOnInterrupt(ExitIn(flags.form));
  const auto options = LinkOptions(flags, program_folder);
  if (!options.has_value()) {
    return Fail(flags.form, kUsage, options.status());
  }
  const auto report =
      runtime::RunBenchLink(*options, [](std::string_view line) { fmt::print(stderr, "bench: {}\n", line); });
  if (!report.has_value()) {
    return Fail(flags.form, kFailed, report.status().WithContext(StrCat("the source's log is ", options->log_path)));
  }
  std::error_code ignored;
  std::filesystem::remove(options->log_path, ignored);
  Print(flags.form == Form::kJson ? BenchLinkAsJson(*report, flags.transport, flags.shape) : AsText(*report));
  return kOk;
}

int RunLinkSource(const Flags& flags) {
  const auto gpu = ParseDevice("--from", flags.from);
  if (!gpu.has_value()) {
    return Fail(flags.form, kUsage, gpu.status());
  }
  runtime::BenchSourceOptions options{.model = flags.model, .gpu = *gpu, .transports = {}};
  options.transports.nixl = NixlFrom(flags.nixl_library, nullptr);
  SetOnInterrupt(OnInterrupt::kStop);
  const Status status = runtime::ServeBenchSource(
      options, [](std::string_view address) { Print(StrCat(runtime::kBenchSourceReady, address)); }, WaitForInterrupt);
  return status.ok() ? kOk : Fail(flags.form, kFailed, status);
}

constexpr char kShapes[] = "a random model instead: tiny, qwen3-0.6b, qwen3-0.6b-untied, moe-18k";

// The other process of `bench link`: not for people.
void AddLinkSource(CLI::App& app, Flags& flags) {
  CLI::App* const source = app.add_subcommand("link-source", "the sender of `bench link`, which starts it");
  source->group("");
  source->add_option("--model", flags.model)->required();
  source->add_option("--from", flags.from);
  source->add_option("--nixl-library", flags.nixl_library);
}

void AddLink(CLI::App& app, Flags& flags) {
  CLI::App* const link = app.add_subcommand("link", "a link between two processes, without an engine");
  link->add_option("--transport", flags.transport, "cuda_ipc or nixl")
      ->check(CLI::IsMember({"cuda_ipc", "nixl"}))
      ->capture_default_str();
  link->add_option("--from", flags.from, "where the weights are: cpu or cuda:N")->capture_default_str();
  link->add_option("--into", flags.into, "where they go: cpu or cuda:N")->capture_default_str();
  auto* const model = link->add_option("--model", flags.model, "a Hugging Face checkpoint folder");
  link->add_option("--random", flags.shape, kShapes)->excludes(model)->default_str("qwen3-0.6b");
  link->add_option("--piece-bytes", flags.piece_bytes, "what the link moves at once (default 4MiB; into a GPU 64MiB)");
  link->add_option("--nixl-library", flags.nixl_library, "folder of the wheel nixl-cu13, or libnixl_capi.so itself");
  AddFormFlag(*link, flags.form);
  link->footer("Example:\n  refit bench link --transport cuda_ipc --from cuda:1 --into cuda:0 --json");
}

}  // namespace

Run AddBench(CLI::App& app, const Invocation& invocation) {
  auto flags = std::make_shared<Flags>();
  app.description("Measure a transport beside the machine's own ceiling in the same run.");
  app.require_subcommand(1);
  CLI::App* const shm = app.add_subcommand("shm", "shared memory: one policy worker to one reference engine, TP 1");
  auto* const model = shm->add_option("--model", flags->model, "a Hugging Face checkpoint folder");
  shm->add_option("--random", flags->shape, kShapes)->excludes(model)->default_str("qwen3-0.6b");
  shm->add_option("--load-bytes", flags->load_bytes, "largest load, but for a tensor larger than that")
      ->capture_default_str();
  AddFormFlag(*shm, flags->form);
  shm->footer("Example:\n  refit bench shm --random qwen3-0.6b --json");
  AddLink(app, *flags);
  AddLinkSource(app, *flags);
  return [flags, &app, program_folder = invocation.program_folder] {
    if (app.got_subcommand("link-source")) {
      return RunLinkSource(*flags);
    }
    if (flags->model.empty() && flags->shape.empty()) {
      flags->shape = "qwen3-0.6b";
    }
    return app.got_subcommand("link") ? RunLink(*flags, program_folder) : RunShm(*flags, program_folder);
  };
}

}  // namespace refit::cli
