// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "refit/cli/command.h"
#include "refit/cli/link_flags.h"
#include "refit/cli/role.h"
#include "refit/config/guards.h"
#include "refit/config/schema.h"
#include "refit/runtime/agent_host.h"
#include "refit/runtime/model_fit.h"

namespace refit::cli {
namespace {

struct Flags {
  Form form = Form::kText;
  std::string config;
  ControllerFlags controller;
  std::uint32_t slot = 0;
  std::optional<std::uint32_t> like;
  std::string engine;
  std::optional<std::uint32_t> tp_size;
  std::string url;
  std::string api_key_file;
  std::string admin_api_key_file;
  std::string load_bytes;
  std::string pause;
  std::string run_directory;
  std::string listen = "127.0.0.1:0";
  std::string engine_program;
  std::string python = "python3";
  std::string transport;
  std::string piece_bytes;
  std::string staging;
  std::vector<std::string> gpus;
  std::string nixl_library;
};

constexpr ByteCount kReferenceLoadBytes = 4 * kMiB;
constexpr ByteCount kGpuPieceBytes = 64 * kMiB;

runtime::EngineKind KindOf(config::EngineChoice kind) {
  switch (kind) {
    case config::EngineChoice::kReference: return runtime::EngineKind::kReference;
    case config::EngineChoice::kSglang: return runtime::EngineKind::kSglang;
    case config::EngineChoice::kAttach: break;
  }
  return runtime::EngineKind::kAttach;
}

sync::PauseMode ModeOf(config::PauseChoice pause) {
  switch (pause) {
    case config::PauseChoice::kAbort: return sync::PauseMode::kAbort;
    case config::PauseChoice::kRetract: return sync::PauseMode::kRetract;
    case config::PauseChoice::kInPlace: break;  // refused before (RC-CFG-06)
  }
  return sync::PauseMode::kAbort;
}

// What the flags and the file say together; flags win.
struct Choice {
  config::EngineOptions engine;
  config::PauseChoice pause = config::PauseChoice::kAbort;
  std::optional<config::Job> job;
};

Result<Choice> Choose(const Flags& flags, const Invocation& invocation) {
  Choice choice;
  config::EngineOptions& engine = choice.engine;
  if (!flags.config.empty()) {
    REFIT_ASSIGN_OR_RETURN(choice.job, config::ReadJobFile(flags.config));
    const auto& engines = choice.job->options.engines;
    const std::uint32_t entry = flags.like.value_or(flags.slot);
    const auto found = std::find_if(engines.begin(), engines.end(),
                                    [entry](const config::EngineOptions& one) { return one.slot == entry; });
    if (found == engines.end()) {
      return InvalidArgument(
          fmt::format("--{} is {}, which {} does not list", flags.like ? "like" : "slot", entry, flags.config),
          "give a slot of its engines, or for a slot that was added --like one of them");
    }
    engine = *found;
    choice.pause = choice.job->options.generation.pause;
  }
  engine.slot = flags.slot;
  if (!flags.engine.empty()) {
    engine.kind = flags.engine == "attach"   ? config::EngineChoice::kAttach
                  : flags.engine == "sglang" ? config::EngineChoice::kSglang
                                             : config::EngineChoice::kReference;
  }
  engine.tp_size = flags.tp_size.value_or(engine.tp_size);
  engine.url = flags.url.empty() ? engine.url : flags.url;
  engine.api_key_file = flags.api_key_file.empty() ? engine.api_key_file : flags.api_key_file;
  engine.admin_api_key_file = flags.admin_api_key_file.empty() ? engine.admin_api_key_file : flags.admin_api_key_file;
  if (!flags.load_bytes.empty()) {
    auto bytes = config::ParseBytes(flags.load_bytes);
    if (!bytes.has_value()) {
      return bytes.status().WithContext("--load-bytes");
    }
    engine.load_bytes = *bytes;
  }
  if (!flags.pause.empty()) {
    choice.pause = flags.pause == "retract"    ? config::PauseChoice::kRetract
                   : flags.pause == "in_place" ? config::PauseChoice::kInPlace
                                               : config::PauseChoice::kAbort;
  }
  if (!invocation.after_dashes.empty()) {
    engine.args = invocation.after_dashes;
  }
  if (engine.load_bytes == 0) {
    engine.load_bytes = engine.kind == config::EngineChoice::kSglang ? config::kSglangLoadBytes : kReferenceLoadBytes;
  }
  return choice;
}

// How weights come: --transport and what belongs to it.
Status AddLink(const Flags& flags, const Choice& choice, runtime::AgentHostOptions& options) {
  for (const std::string& gpu : flags.gpus.empty() ? choice.engine.gpus : flags.gpus) {
    REFIT_ASSIGN_OR_RETURN(const std::optional<int> ordinal, ParseDevice("--gpus", "cuda:" + gpu));
    options.gpus.push_back(*ordinal);
  }
  if (!options.gpus.empty()) {
    options.piece_bytes = kGpuPieceBytes;
  }
  if (choice.job.has_value()) {
    options.transport = choice.job->options.transport;
    options.piece_bytes = choice.job->options.bucket_bytes.value_or(options.piece_bytes);
    options.staging = choice.job->options.stages ? runtime::Staging::kDevice : runtime::Staging::kNone;
  }
  if (!flags.transport.empty()) {
    options.transport = flags.transport;
  }
  if (!options.gpus.empty() && options.gpus.size() != options.tp_size) {
    return InvalidArgument(fmt::format("--gpus names {} GPUs for {} ranks", options.gpus.size(), options.tp_size),
                           "name one for each TP rank, in order");
  }
  if (options.transport == "cuda_ipc" && options.gpus.empty()) {
    return InvalidArgument("--transport cuda_ipc needs --gpus", "name the GPU of each TP rank, as in --gpus 0,1");
  }
  if (!flags.piece_bytes.empty()) {
    REFIT_ASSIGN_OR_RETURN(options.piece_bytes, ParsePieceBytes(flags.piece_bytes));
  }
  if (!flags.staging.empty()) {
    options.staging = flags.staging == "none" ? runtime::Staging::kNone : runtime::Staging::kDevice;
  }
  options.transports.nixl = NixlFrom(flags.nixl_library, choice.job.has_value() ? &*choice.job : nullptr);
  return OkStatus();
}

Result<runtime::AgentHostOptions> MakeOptions(const Flags& flags, const Invocation& invocation) {
  REFIT_ASSIGN_OR_RETURN(const Choice choice, Choose(flags, invocation));
  const config::EngineOptions& engine = choice.engine;
  // Asked again here, since no file need have come in between (RC-CFG-05, -06).
  REFIT_RETURN_IF_ERROR(config::CheckEngine(engine));
  REFIT_RETURN_IF_ERROR(config::CheckPauseMode(config::BackendChoice::kSglang, choice.pause, engine));

  runtime::AgentHostOptions options;
  options.kind = KindOf(engine.kind);
  REFIT_RETURN_IF_ERROR(runtime::CheckEngineArguments(options.kind, engine.args));
  REFIT_RETURN_IF_ERROR(runtime::CheckModelFits(engine.args, engine.tp_size).WithContext("--tp"));
  options.slot = SlotIndex(engine.slot);
  REFIT_ASSIGN_OR_RETURN(const runtime::ControllerPlace place,
                         PlaceOf(flags.controller, choice.job.has_value() ? &*choice.job : nullptr));
  options.controller = place.address;
  options.state_directory = place.state_directory;
  options.listen = flags.listen;
  options.tp_size = engine.tp_size;
  options.engine_program = options.kind == runtime::EngineKind::kSglang ? flags.python
                           : flags.engine_program.empty()               ? invocation.program_folder + "/refit-engine"
                                                                        : flags.engine_program;
  options.engine_args = engine.args;
  options.url = engine.url;
  if (!engine.api_key_file.empty()) {
    REFIT_ASSIGN_OR_RETURN(options.api_key, ReadKey("--api-key-file", engine.api_key_file));
  }
  options.admin_key = options.api_key;
  if (!engine.admin_api_key_file.empty()) {
    REFIT_ASSIGN_OR_RETURN(options.admin_key, ReadKey("--admin-api-key-file", engine.admin_api_key_file));
  }
  options.run_directory = flags.run_directory;
  if (options.run_directory.empty()) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    options.run_directory = (folder / fmt::format("refit-agent-{}-{}", engine.slot, getpid())).string();
  }
  options.load_bytes = engine.load_bytes;
  REFIT_RETURN_IF_ERROR(AddLink(flags, choice, options));
  options.pause_mode = ModeOf(choice.pause);
  if (options.kind == runtime::EngineKind::kSglang) {
    options.launch_deadline = config::kSglangLaunchDeadline;
  }
  if (choice.job.has_value()) {
    const config::DeadlineOptions& deadlines = choice.job->options.deadlines;
    options.launch_deadline = deadlines.launch;
    options.call_deadline = deadlines.call;
    options.update_deadline = deadlines.update;
    options.stall_deadline = deadlines.stall;
    options.register_deadline = deadlines.registration;
  }
  return options;
}

int RunAgent(const Flags& flags, const Invocation& invocation) {
  SetOnInterrupt(ExitIn(flags.form));
  auto options = MakeOptions(flags, invocation);
  if (!options.has_value()) {
    return Fail(flags.form, kUsage, options.status());
  }
  BeginRole(fmt::format("agent-{}", flags.slot));
  const auto host = runtime::AgentHost::Start(*std::move(options));
  if (!host.has_value()) {
    return Fail(flags.form, kFailed, host.status());
  }
  return ServeUntilInterrupted(flags.form, {"agent", (*host)->address(), (*host)->engine_url()});
}

}  // namespace

Run AddAgent(CLI::App& app, const Invocation& invocation) {
  auto flags = std::make_shared<Flags>();
  app.description("Run an agent: it owns one engine, receives weights for it and drives its sessions.");
  app.add_option("--slot", flags->slot, "the engine's place in the fleet")->required();
  AddControllerFlags(app, flags->controller);
  app.add_option("--engine", flags->engine,
                 "reference: start refit-engine; sglang: start SGLang; attach: drive the server at --url")
      ->check(CLI::IsMember({"reference", "sglang", "attach"}));
  app.add_option("--tp", flags->tp_size, "tensor-parallel ranks (default 1)");
  app.add_option("--url", flags->url, "the server to attach to");
  app.add_option("--api-key-file", flags->api_key_file,
                 "file whose first line is the server's API key, or the one key that it has");
  app.add_option("--admin-api-key-file", flags->admin_api_key_file,
                 "file whose first line is its admin key, where it has both (attach)");
  app.add_option("--load-bytes", flags->load_bytes, "what one update call carries (default 4MiB; sglang: 512MiB)");
  app.add_option("--transport", flags->transport,
                 "how weights come (default auto: cuda_ipc between GPUs, shm else); shm, cuda_ipc or nixl")
      ->check(CLI::IsMember({"auto", "shm", "cuda_ipc", "nixl"}));
  app.add_option("--gpus", flags->gpus, "the GPU of each TP rank, as this process numbers them (0,1)")->delimiter(',');
  app.add_option(
         "--staging", flags->staging,
         "cuda_ipc: device (default) copies loads beside the engine first, none lets it read the sender's memory")
      ->check(CLI::IsMember({"device", "none"}));
  app.add_option("--piece-bytes", flags->piece_bytes, "what a link moves at once (default 4MiB; with --gpus 64MiB)");
  app.add_option("--nixl-library", flags->nixl_library, "folder of the wheel nixl-cu13, or libnixl_capi.so itself");
  app.add_option("--pause-mode", flags->pause, "what a pause does with running requests (default abort)")
      ->check(CLI::IsMember({"abort", "retract", "in_place"}));
  app.add_option("--run-directory", flags->run_directory,
                 "logs and keys of the engine (default: a folder of its own in the temporary one)");
  app.add_option("--listen", flags->listen, "host:port; port 0 takes a free one")->capture_default_str();
  app.add_option("--engine-program", flags->engine_program, "refit-engine (default: beside this program)");
  app.add_option("--python", flags->python, "the Python that has SGLang, a path or a name (--engine sglang)")
      ->capture_default_str();
  auto* config =
      app.add_option("--config", flags->config, "the job's file; --slot picks its entry, other flags win over it");
  app.add_option("--like", flags->like, "the slot whose entry is taken, for one that `refit engine add` put there")
      ->needs(config);
  AddFormFlag(app, flags->form);
  app.footer(
      "What follows -- goes to the engine.\n"
      "Example:\n  refit agent --slot 0 --controller 127.0.0.1:41233 --engine reference --tp 3 -- --model models/smol "
      "--family c\n"
      "  refit agent --slot 1 --controller 127.0.0.1:41233 --engine sglang --tp 2 -- --model-path models/qwen3\n"
      "  refit agent --slot 2 --controller 127.0.0.1:41233 --engine attach --url http://127.0.0.1:30000");
  return [flags, &invocation] { return RunAgent(*flags, invocation); };
}

}  // namespace refit::cli
