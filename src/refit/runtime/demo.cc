// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/demo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "refit/checkpoint/checkpoint.h"
#include "refit/checkpoint/file.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/checkpoint/tokenizer.h"
#include "refit/device/host/memory_ceiling.h"
#include "refit/engine/sglang/sglang_engine.h"
#include "refit/exec/clock.h"
#include "refit/observe/timeline_svg.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/demo_fleet.h"
#include "refit/runtime/demo_kill.h"
#include "refit/runtime/request_id.h"
#include "refit/runtime/source.h"

namespace refit::runtime {
namespace {

constexpr std::uint64_t kRandomSeed = 1;
constexpr int kCeilingPasses = 3;
constexpr std::uint32_t kMaxNewTokens = 24;
constexpr Duration kGenerateDeadline = std::chrono::seconds(120);
constexpr Duration kVerifyDeadline = std::chrono::seconds(120);
constexpr std::uint32_t kDefaultPolicies = 2;
constexpr Duration kPythonDeadline = std::chrono::seconds(60);

// The agents' default.
ByteCount LoadBytesOf(EngineKind kind) { return kind == EngineKind::kSglang ? 512 * kMiB : 4 * kMiB; }

// The largest of 3, 2, 1 that divides the model, or what was asked for, if it does.
Result<DemoPlan> MakePlan(const DemoOptions& options, const std::string& model_folder) {
  REFIT_ASSIGN_OR_RETURN(const weights::ModelConfig config, checkpoint::ReadModelConfig(model_folder));
  DemoPlan plan{.model_folder = model_folder, .tp_size = options.tp_size, .policy_count = options.policy_count};
  const std::uint32_t most = options.kind == EngineKind::kSglang ? 1 : 3;  // settled D17
  for (std::uint32_t size = most; plan.tp_size == 0 && size > 0; --size) {
    if (size == 1 || weights::CheckTpSize(config, size).ok()) {
      plan.tp_size = size;
    }
  }
  REFIT_RETURN_IF_ERROR(weights::CheckTpSize(config, plan.tp_size).WithContext("--tp"));
  const std::uint32_t rollout_ranks = plan.tp_size * options.engine_count;
  if (plan.policy_count == 0) {
    plan.policy_count = options.strict ? std::max(kDefaultPolicies, rollout_ranks) : kDefaultPolicies;
  }
  return plan;
}

Result<std::string> FindModel(const DemoOptions& options, DemoSink& sink) {
  if (options.random_shape.empty()) {
    return options.model_folder;
  }
  REFIT_ASSIGN_OR_RETURN(const weights::ModelConfig config, checkpoint::RandomShape(options.random_shape));
  const std::string folder = fmt::format("{}/random/{}", options.cache_folder, options.random_shape);
  sink.Line(fmt::format("model {} with random weights in {}", options.random_shape, folder));
  REFIT_RETURN_IF_ERROR(checkpoint::WriteRandomCheckpoint(config, kRandomSeed, folder));
  return folder;
}

// What each engine says to the prompt, greedily.
class Listener {
 public:
  static Result<Listener> Open(const std::string& model_folder, const std::string& prompt) {
    Listener listener;
    auto tokenizer = checkpoint::Tokenizer::Open(model_folder);
    if (tokenizer.has_value()) {
      listener.tokenizer_ = *std::move(tokenizer);
      REFIT_ASSIGN_OR_RETURN(listener.prompt_, listener.tokenizer_->Encode(listener.tokenizer_->ChatPrompt(prompt)));
    } else if (tokenizer.status().code() == StatusCode::kNotFound) {
      listener.prompt_ = {1, 2, 3, 4, 5, 6, 7, 8};
    } else {
      return tokenizer.status();
    }
    return listener;
  }

  const std::vector<checkpoint::TokenId>& prompt() const { return prompt_; }
  Result<std::vector<std::int32_t>> AskTokens(const std::string& url) const {
    REFIT_ASSIGN_OR_RETURN(const auto engine, engine::sglang::ConnectSglang({.url = url, .admin_key = {}}));
    REFIT_ASSIGN_OR_RETURN(
        const engine::Generation generation,
        engine->Generate({.text = {}, .token_ids = prompt_, .max_new_tokens = kMaxNewTokens}, kGenerateDeadline));
    return generation.token_ids;
  }
  std::string TextOf(const std::vector<std::int32_t>& token_ids) const {
    return tokenizer_ == nullptr ? fmt::format("{}", token_ids)
                                 : tokenizer_->Decode(token_ids, checkpoint::Tokenizer::SpecialTokens::kSkip);
  }

 private:
  std::unique_ptr<checkpoint::Tokenizer> tokenizer_;
  std::vector<checkpoint::TokenId> prompt_;
};

// What this memory allows for the same loads: the engines' streams, one after the other, on the same two cores.
class Ceiling {
 public:
  static Result<Ceiling> Open(const std::string& model_folder, std::uint32_t engine_count, ByteCount load_bytes) {
    Ceiling ceiling;
    ceiling.engine_count_ = engine_count;
    REFIT_ASSIGN_OR_RETURN(ceiling.source_, Source::Open(model_folder));
    REFIT_ASSIGN_OR_RETURN(const auto loads, ceiling.source_->Cut(stream::PackUnit::kLoad, load_bytes));
    std::vector<stream::CopyPlan> plans;
    for (const stream::PackedBucket& load : *loads) {
      plans.push_back(load.copies);
    }
    const std::span<const Bytes> tensors = ceiling.source_->tensors();
    REFIT_ASSIGN_OR_RETURN(ceiling.ceiling_,
                           device::MemoryCeiling::Create({tensors.begin(), tensors.end()}, std::move(plans)));
    REFIT_RETURN_IF_ERROR(ceiling.ceiling_->Measure().status());  // warm
    return ceiling;
  }
  // The fastest of a few passes: a ceiling is what this memory can do, not what it does while something else runs.
  Result<double> Measure() const {
    Duration fastest = Duration::max();
    for (int pass = 0; pass < kCeilingPasses; ++pass) {
      REFIT_ASSIGN_OR_RETURN(const Duration once, ceiling_->Measure());
      fastest = std::min(fastest, once);
    }
    return ToSeconds(fastest) * engine_count_;
  }

 private:
  std::uint32_t engine_count_ = 1;
  std::shared_ptr<Source> source_;  // before ceiling_, which reads it
  std::unique_ptr<device::MemoryCeiling> ceiling_;
};

class Demo {
 public:
  Demo(const DemoOptions& options, DemoSink& sink, const std::function<bool()>& interrupted)
      : options_(options), sink_(sink), interrupted_(interrupted), altered_(options.logs_folder + "/altered") {}
  ~Demo() {
    std::error_code ignored;
    std::filesystem::remove_all(altered_, ignored);
  }
  Demo(const Demo&) = delete;
  Demo& operator=(const Demo&) = delete;

  Result<DemoReport> Run() {
    REFIT_ASSIGN_OR_RETURN(const std::string model, FindModel(options_, sink_));
    REFIT_ASSIGN_OR_RETURN(const DemoPlan plan, MakePlan(options_, model));
    report_.model = model;
    report_.tp_size = plan.tp_size;
    report_.logs_folder = options_.logs_folder;
    REFIT_ASSIGN_OR_RETURN(const Listener listener, Listener::Open(model, options_.prompt));

    std::string engine = "an engine";
    if (options_.kind == EngineKind::kSglang) {
      REFIT_ASSIGN_OR_RETURN(engine, FindSglang(options_.engine_program, options_.logs_folder));
    }
    sink_.Line(fmt::format("starting 1 controller, {} policy workers, {} with {}{}: TP {}, random weights",
                           plan.policy_count,
                           options_.engine_count == 1 ? "1 agent" : fmt::format("{} agents", options_.engine_count),
                           engine, options_.engine_count == 1 ? "" : " each", plan.tp_size));
    if (options_.kind == EngineKind::kSglang) {
      sink_.Line(
          fmt::format("a server takes from 20 s to minutes to start: tail -f {}/engine-0-1.log", options_.logs_folder));
    }
    DemoFleet fleet(options_, plan, interrupted_);
    REFIT_RETURN_IF_ERROR(fleet.Start());
    report_.controller = fleet.controller();
    REFIT_RETURN_IF_ERROR(Listen("before", listener, fleet));
    REFIT_RETURN_IF_ERROR(checkpoint::WriteAlteredCheckpoint(model, altered_));
    REFIT_ASSIGN_OR_RETURN(const Ceiling ceiling,
                           Ceiling::Open(model, options_.engine_count, LoadBytesOf(options_.kind)));
    for (const auto& [name, source] : {std::pair<std::string, std::string>("the real weights", ""),
                                       std::pair<std::string, std::string>("an altered set", altered_),
                                       std::pair<std::string, std::string>("the real weights again", "")}) {
      REFIT_RETURN_IF_ERROR(Refit(name, source, fleet, ceiling));
      REFIT_RETURN_IF_ERROR(Listen(fmt::format("after refit {}, {}", report_.refits.size(), name), listener, fleet));
      if (options_.kill.has_value() && !report_.kill.has_value()) {
        REFIT_RETURN_IF_ERROR(Kill(listener, fleet));
      }
    }
    EndTraffic();
    REFIT_RETURN_IF_ERROR(DrawTimeline());
    REFIT_ASSIGN_OR_RETURN(report_.verification, rpc::ControllerClient::Connect(fleet.controller())
                                                     ->Verify({.slot = -1, .model = {}, .budget = kVerifyDeadline}));
    sink_.Done(report_);
    if (options_.after == DemoOptions::After::kKeepRunning) {
      exec::WaitUntil(interrupted_, kNever);
    }
    return report_;
  }

 private:
  Status Listen(const std::string& when, const Listener& listener, const DemoFleet& fleet) {
    DirectTraffic(Asked::kNobody);
    DemoText text{when, {}};
    for (const std::string& url : urls_.empty() ? fleet.engine_urls() : urls_) {
      REFIT_ASSIGN_OR_RETURN(std::vector<std::int32_t> said, listener.AskTokens(url));
      text.engines.push_back(listener.TextOf(said));
      said_ = std::move(said);
    }
    if (!report_.refits.empty() && options_.kill.has_value()) {  // every engine is proven to hold the same
      judge_.Add(report_.refits.back().report.version, asked_, answered_, said_);
    }
    DirectTraffic(Asked::kEverybody);
    sink_.Text(text);
    report_.texts.push_back(std::move(text));
    return OkStatus();
  }

  // Not while engines are asked for their texts: a small machine would take minutes for both.
  enum class Asked : std::uint8_t { kNobody, kEverybody };
  void DirectTraffic(Asked whom) {
    for (std::uint32_t slot = 0; traffic_.has_value() && slot < urls_.size(); ++slot) {
      traffic_->Send(SlotIndex(slot), whom == Asked::kEverybody ? urls_[slot] : "");
    }
  }

  // Under steady traffic at every engine, which goes on until the last refit has ended.
  Status Kill(const Listener& listener, const DemoFleet& fleet) {
    const auto& prompt = listener.prompt();
    traffic_.emplace(std::vector<std::int32_t>(prompt.begin(), prompt.end()), kMaxNewTokens);
    urls_ = fleet.engine_urls();
    for (std::uint32_t slot = 0; slot < urls_.size(); ++slot) {
      traffic_->Send(SlotIndex(slot), urls_[slot]);
    }
    const SlotIndex slot = *options_.kill;
    REFIT_ASSIGN_OR_RETURN(report_.kill, KillAndWatch({fleet.controller(), options_.logs_folder, slot}, sink_,
                                                      interrupted_, [this, slot](const std::string& url) {
                                                        urls_[slot.value()] = url;
                                                        traffic_->Send(slot, url);
                                                      }));
    sink_.Line(
        fmt::format("  engine {} serves the published version again after {:.2f} s; its launch took {:.2f} s of them",
                    slot.value(), report_.kill->time_to_return_seconds, report_.kill->launch_seconds));
    return Listen(fmt::format("after the recovery of engine {}", slot.value()), listener, fleet);
  }

  void EndTraffic() {
    if (!traffic_.has_value()) {
      return;
    }
    traffic_->Stop();
    TrafficCounts& counts = report_.kill->traffic;
    counts = judge_.Judge(traffic_->Take());
    counts.failed = traffic_->failed();
    sink_.Line(fmt::format("\ntraffic meanwhile: {} answers, {} mixed, {} stale, {} failed; opened links: {}",
                           counts.answers, counts.mixed, counts.stale, counts.failed,
                           fmt::join(report_.kill->rebound_peers, ", ")));
  }

  Status Refit(const std::string& name, const std::string& source, const DemoFleet& fleet, const Ceiling& ceiling) {
    const auto client = rpc::ControllerClient::Connect(fleet.controller());
    asked_ = exec::Now();
    REFIT_ASSIGN_OR_RETURN(
        rpc::SyncReport report,
        client->Sync({.request_id = NewRequestId(), .source = source, .budget = options_.sync_deadline},
                     [this](const rpc::SyncProgress& progress) { sink_.Progress(progress); }));
    answered_ = exec::Now();
    if (!report.status.ok()) {
      std::string residues;
      for (const rpc::EngineReport& engine : report.engines) {
        residues += fmt::format("; engine {} holds {}", engine.slot.value(), sync::ToString(engine.residue));
      }
      return {report.status.code(), fmt::format("refit {}: {}{}", name, report.status.message(), residues),
              report.status.remedy()};
    }
    DemoRefit refit{.name = name, .report = std::move(report)};
    REFIT_ASSIGN_OR_RETURN(refit.ceiling_seconds, ceiling.Measure());
    sink_.Refit(refit);
    report_.refits.push_back(std::move(refit));
    return OkStatus();
  }

  Status DrawTimeline() {
    std::vector<observe::TimelinePanel> panels;
    for (const DemoRefit& refit : report_.refits) {
      observe::TimelinePanel panel{
          fmt::format("refit {}: {}, {:.3f} s", panels.size() + 1, refit.name, refit.report.seconds), {}};
      for (const rpc::Span& span : refit.report.spans) {
        panel.spans.push_back({span.lane, span.name, span.begin_seconds, span.end_seconds});
      }
      panels.push_back(std::move(panel));
    }
    report_.timeline_path = options_.logs_folder + "/timeline.svg";
    return checkpoint::WriteFile(report_.timeline_path,
                                 observe::DrawTimeline("What each process did in each refit", panels));
  }

  const DemoOptions& options_;
  DemoSink& sink_;
  const std::function<bool()>& interrupted_;
  const std::string altered_;
  DemoReport report_;
  std::vector<std::string> urls_;  // since somebody was killed
  std::vector<std::int32_t> said_;
  Instant asked_{};
  Instant answered_{};  // the last refit
  TrafficJudge judge_;
  std::optional<Traffic> traffic_;
};

}  // namespace

Result<std::string> FindSglang(const std::string& python, const std::string& logs_folder) {
  // Without importing it: that takes seconds, and on the CPU an environment of its own.
  constexpr const char* kAsk = "import importlib.metadata as m; print('SGLang ' + m.version('sglang'), flush=True)";
  engine::process::ChildOptions options{.arguments = {python, "-c", kAsk},
                                        .environment = {},
                                        .log_path = logs_folder + "/python.log",
                                        .ready_prefix = "SGLang "};
  if (python.find('/') == std::string::npos) {
    options.arguments.insert(options.arguments.begin(), "/usr/bin/env");
  }
  constexpr const char* kRemedy =
      "name the Python that has it: --python PATH; without a GPU, tools/sglang/install_cpu.sh 0.5.23 installs one and "
      "prints its path";
  auto child = engine::process::ChildProcess::Start(options);
  if (!child.has_value()) {
    return NotFound(fmt::format("{} cannot be started", python), kRemedy);
  }
  const auto version = child->WaitReady(exec::Now() + kPythonDeadline);
  if (!version.has_value()) {
    const std::string said = child->LastOutput();
    const bool plain = said.empty() || said.find("PackageNotFoundError") != std::string::npos;
    return NotFound(fmt::format("{} has no SGLang{}", python, plain ? "" : ": " + said), kRemedy);
  }
  return fmt::format("SGLang {}", *version);
}

double CeilingShare(const DemoRefit& refit) {
  return refit.report.seconds > 0 ? refit.ceiling_seconds / refit.report.seconds : 0;
}

Result<DemoReport> RunDemo(const DemoOptions& options, DemoSink& sink, const std::function<bool()>& interrupted) {
  std::error_code error;
  std::filesystem::create_directories(options.logs_folder, error);
  if (error) {
    return FailedPrecondition(fmt::format("cannot create {}: {}", options.logs_folder, error.message()),
                              "run it in a folder that you may write to");
  }
  auto report = Demo(options, sink, interrupted).Run();
  if (interrupted() && !(report.has_value() && options.after == DemoOptions::After::kKeepRunning)) {
    return Status(StatusCode::kCancelled, "interrupted; everything that was started is ended", "run it again");
  }
  return report;
}

}  // namespace refit::runtime
