// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/demo.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "refit/cli/cache.h"
#include "refit/cli/command.h"
#include "refit/cli/report_text.h"
#include "refit/cli/role.h"
#include "refit/config/job_options.h"
#include "refit/observe/progress.h"

namespace refit::cli {
namespace {

struct Flags {
  Form form = Form::kText;
  std::string model;
  std::string shape;
  std::uint32_t tp_size = 0;
  std::string engine = "reference";
  std::string python = "python3";
  std::uint32_t engines = 0;
  std::uint32_t policies = 0;
  std::string profile = "resilient";
  std::string family;
  std::string kill;  // "engine-1"
  bool keep = false;
};

// Random weights say anything, control characters included.
std::string OneLine(const std::string& text) {
  std::string line;
  for (const char c : text) {
    line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return line;
}

std::string TableOf(const std::vector<runtime::DemoRefit>& refits) {
  std::vector<std::string> header = {"refit", "tensors", "bytes", "seconds", "GB/s", "of ceiling"};
  for (const rpc::EngineReport& engine : refits.front().report.engines) {
    header.push_back(fmt::format("stall {}", engine.slot.value()));
  }
  std::vector<std::vector<std::string>> rows;
  for (const runtime::DemoRefit& refit : refits) {
    const rpc::SyncReport& report = refit.report;
    rows.push_back({refit.name, observe::FormatCount(report.published.tensors),
                    observe::FormatBytes(report.published.bytes), observe::FormatSeconds(report.seconds),
                    fmt::format("{:.2f}", GigabytesPerSecond(report)),
                    fmt::format("{:.0f} %", 100 * runtime::CeilingShare(refit))});
    for (const rpc::EngineReport& engine : report.engines) {
      rows.back().push_back(observe::FormatSeconds(engine.stall_seconds));
    }
    rows.back().resize(header.size());
  }
  return observe::FormatTable(header, rows);
}

// Shows what happens. With --json the bar at most, on standard error.
class Screen final : public runtime::DemoSink {
 public:
  explicit Screen(const Flags& flags) : flags_(flags), bar_(ProgressStyleFor(flags.form), TerminalGlyphs()) {}

  void Line(const std::string& text) override { Show(text); }
  void Text(const runtime::DemoText& text) override {
    Show("\n" + text.when);
    for (std::size_t i = 0; i < text.engines.size(); ++i) {
      Show(fmt::format("  engine {} says: {}", i, OneLine(text.engines[i])));
    }
  }
  void Refit(const runtime::DemoRefit& refit) override {
    Show(fmt::format("\nrefit {}, {}: {} tensors, {} delivered in {}", ++refits_, refit.name,
                     refit.report.published.tensors, observe::FormatBytes(BytesDelivered(refit.report)),
                     observe::FormatSeconds(refit.report.seconds)));
  }
  void Progress(const rpc::SyncProgress& progress) override {
    bar_.Show({progress.phase, progress.bytes_delivered, progress.bytes_total});
  }
  void Done(const runtime::DemoReport& report) override {
    Show("\n" + TableOf(report.refits) +
         "GB/s: bytes over ranks; ceiling: the same loads, copied in and out of the same memory by two "
         "threads\n\ntimeline: " +
         report.timeline_path + "\nlogs: " + report.logs_folder);
    if (flags_.keep) {
      Show(fmt::format("still running until Ctrl-C: refit status --controller {}", report.controller));
    }
    Show(VerdictOf(report.verification));
  }

 private:
  void Show(const std::string& text) {
    bar_.Clear();
    if (flags_.form == Form::kText) {
      Print(text);
    }
  }

  const Flags& flags_;
  observe::ProgressLine bar_;
  int refits_ = 0;
};

// build/demo/<time> where there is a build folder, else a temporary one.
std::string LogsFolder() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H-%M-%S", &utc);
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (std::filesystem::is_directory(here / "build", error) && access((here / "build").c_str(), W_OK) == 0) {
    return (here / "build" / "demo" / stamp).string();
  }
  return (std::filesystem::temp_directory_path(error) / fmt::format("refit-demo-{}-{}", stamp, getpid())).string();
}

// What is said about the engines. Servers of SGLang: one, since a small machine has room for one (settled D17).
Status SetEngines(const Flags& flags, const Invocation& invocation, runtime::DemoOptions& options) {
  if (flags.engine == "sglang") {
    if (!flags.family.empty()) {
      return InvalidArgument("--family is refit-engine's; an SGLang server is of the family of its version",
                             "leave --family out");
    }
    REFIT_RETURN_IF_ERROR(
        runtime::CheckEngineArguments(runtime::EngineKind::kSglang, invocation.after_dashes).WithContext("behind --"));
    options.kind = runtime::EngineKind::kSglang;
    options.engine_program = flags.python;
    options.engine_args = invocation.after_dashes;
    options.engine_count = flags.engines == 0 ? 1 : flags.engines;
    options.launch_deadline = config::kSglangLaunchDeadline;
    return OkStatus();
  }
  if (!invocation.after_dashes.empty()) {
    return InvalidArgument(fmt::format("{} behind --: refit-engine takes nothing more", invocation.after_dashes[0]),
                           "leave it out, or demo --engine sglang");
  }
  options.engine_program = invocation.program_folder + "/refit-engine";
  options.engine_count = flags.engines == 0 ? options.engine_count : flags.engines;
  options.family = flags.family.empty() ? options.family : flags.family;
  std::error_code error;
  return std::filesystem::exists(options.engine_program, error)
             ? OkStatus()
             : NotFound(fmt::format("{} is missing", options.engine_program), "make build");
}

// "engine-1".
Status SetKill(const Flags& flags, runtime::DemoOptions& options) {
  if (flags.kill.empty()) {
    return OkStatus();
  }
  for (std::uint32_t slot = 0; slot < options.engine_count; ++slot) {
    if (flags.kill == fmt::format("engine-{}", slot)) {
      options.kill = SlotIndex(slot);
    }
  }
  if (!options.kill.has_value() || options.engine_count < 2) {
    return InvalidArgument(
        fmt::format("--kill {}: there are engine-0 to engine-{}", flags.kill, options.engine_count - 1),
        "name one of at least two");
  }
  const bool ours = options.kind == runtime::EngineKind::kReference && options.family == "c";
  return ours && !options.strict ? OkStatus()
                                 : InvalidArgument(
                                       "--kill checks each answer's versions, which refit-engine of family c "
                                       "says, and recovers at once, as profile resilient does",
                                       "leave --engine, --family and --profile out");
}

int RunDemoCommand(const Flags& flags, const Invocation& invocation) {
  SetOnInterrupt(OnInterrupt::kStop);
  runtime::DemoOptions options;
  options.program = invocation.program_folder + "/refit";
  if (const Status status = SetEngines(flags, invocation, options); !status.ok()) {
    return Fail(flags.form, status.code() == StatusCode::kNotFound ? kFailed : kUsage, status);
  }
  options.model_folder = flags.model.empty() ? DemoModelFolder() : flags.model;
  options.random_shape = flags.shape;
  options.cache_folder = CacheFolder();
  options.logs_folder = LogsFolder();
  options.tp_size = flags.tp_size;
  options.policy_count = flags.policies;
  options.strict = flags.profile == "strict";
  if (const Status status = SetKill(flags, options); !status.ok()) {
    return Fail(flags.form, kUsage, status);
  }
  options.after = flags.keep ? runtime::DemoOptions::After::kKeepRunning : runtime::DemoOptions::After::kEnd;

  std::error_code error;
  if (flags.shape.empty() && !std::filesystem::exists(options.model_folder + "/config.json", error)) {
    const Status missing =
        NotFound(fmt::format("no model in {}", options.model_folder),
                 flags.model.empty() ? "run tools/demo_model/fetch.sh or make demo, or try --random tiny"
                                     : "--model takes a checkpoint folder in Hugging Face layout");
    return Fail(flags.form, kUsage, missing);
  }
  Screen screen(flags);
  const auto report = runtime::RunDemo(options, screen, Interrupted);
  if (!report.has_value()) {
    const Status& status = report.status();
    const bool interrupted = status.code() == StatusCode::kCancelled;
    const std::string where = fmt::format("logs: {}", options.logs_folder);
    return Fail(flags.form,
                interrupted                                     ? kInterrupted
                : status.code() == StatusCode::kInvalidArgument ? kUsage
                                                                : kFailed,
                {status.code(), status.message(), status.remedy().empty() ? where : status.remedy() + "; " + where});
  }
  if (flags.form == Form::kJson) {
    Print(DemoAsJson(*report));
  }
  const bool pure = !report->kill.has_value() || report->kill->traffic.mixed + report->kill->traffic.stale == 0;
  return report->verification.verified && pure ? kOk : kNotVerified;
}

}  // namespace

Run AddDemo(CLI::App& app, const Invocation& invocation) {
  auto flags = std::make_shared<Flags>();
  app.description("Refit engines on this machine, from gibberish to English, and prove what they serve.");
  auto* model =
      app.add_option("--model", flags->model, "a Llama or Qwen3 checkpoint folder (default: the cached SmolLM2-135M)");
  app.add_option("--random", flags->shape, "a model with random weights instead, made offline")
      ->check(CLI::IsMember({"tiny", "tiny-llama", "tiny-moe", "qwen3-0.6b", "moe-18k"}))
      ->excludes(model);
  app.add_option("--engine", flags->engine,
                 "reference: refit-engine; sglang: unmodified SGLang servers, what follows -- is for them")
      ->capture_default_str()
      ->check(CLI::IsMember({"reference", "sglang"}));
  app.add_option("--python", flags->python, "the Python that has SGLang, a path or a name")->capture_default_str();
  app.add_option("--tp", flags->tp_size,
                 "ranks per engine (default: the largest of 3, 2, 1 that divides the model; sglang: 1)");
  app.add_option("--engines", flags->engines, "engines (default 2; sglang: 1)")->check(CLI::Range(1, 8));
  app.add_option("--policies", flags->policies, "policy workers (default 2; with strict one per engine rank)")
      ->check(CLI::Range(1, 64));
  app.add_option("--profile", flags->profile, "what a failure means")
      ->capture_default_str()
      ->check(CLI::IsMember({"resilient", "strict"}));
  app.add_option("--family", flags->family, "the session family of refit-engine (default c)")
      ->check(CLI::IsMember({"a", "b", "c"}));
  app.add_option("--kill", flags->kill,
                 "engine-N: kill that engine's server after the first refit, and check every answer that engines give "
                 "until the end");
  auto* keep = app.add_flag("--keep", flags->keep,
                            "leave everything running until Ctrl-C, to try sync, status and verify on it");
  AddFormFlag(app, flags->form);
  app.get_option("--json")->excludes(keep);
  app.footer(
      "Exit code 3: an engine serves other weights than the published ones, or gave a mixed or stale answer.\n"
      "Example:\n  refit demo\n  refit demo --kill engine-1\n  refit demo --random tiny --json\n"
      "  refit demo --engine sglang --python ENV/bin/python -- --mem-fraction-static 0.5\n"
      "Without a GPU: tools/sglang/demo_cpu.sh");
  return [flags, &invocation] { return RunDemoCommand(*flags, invocation); };
}

}  // namespace refit::cli
