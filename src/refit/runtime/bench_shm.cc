// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/bench_shm.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/host/memory_ceiling.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/agent_host.h"
#include "refit/runtime/controller_host.h"
#include "refit/runtime/median.h"
#include "refit/runtime/policy_host.h"
#include "refit/runtime/source.h"

namespace refit::runtime {
namespace {

constexpr Duration kSyncBudget = std::chrono::seconds(300);
constexpr Duration kRegisterDeadline = std::chrono::seconds(30);

// One refit; the seconds of its send: start of the pack to the last load released.
Result<double> SendSeconds(rpc::ControllerClient& client, int number) {
  REFIT_ASSIGN_OR_RETURN(const rpc::SyncReport report,
                         client.Sync({StrCat("bench-", number), "", kSyncBudget}, [](const rpc::SyncProgress&) {}));
  REFIT_RETURN_IF_ERROR(report.status);
  for (const rpc::Span& span : report.spans) {
    if (span.lane == "policy 0" && span.name == sync::ToString(sync::PolicyCommandKind::kSend)) {
      return span.end_seconds - span.begin_seconds;
    }
  }
  return Internal("the refit reports no send");
}

// One controller, one policy worker, one agent in this process; the engine is a process of its own.
class Stage {
 public:
  static Result<std::unique_ptr<Stage>> Set(const BenchShmOptions& options) {
    auto stage = std::make_unique<Stage>();
    stage->options_ = options;
    REFIT_ASSIGN_OR_RETURN(stage->controller_,
                           ControllerHost::Start({.slots = {SlotIndex(0)}, .policy_ranks = {PolicyRank(0)}}));
    stage->client_ = rpc::ControllerClient::Connect(stage->controller_->address());
    REFIT_ASSIGN_OR_RETURN(
        stage->agent_,
        AgentHost::Start({.slot = SlotIndex(0),
                          .controller = stage->controller_->address(),
                          .engine_program = options.engine_program,
                          .engine_args = {"--model", options.model, "--load-format", "dummy", "--family", "c"},
                          .run_directory = options.run_directory,
                          .load_bytes = options.load_bytes,
                          .launch_deadline = std::chrono::seconds(120)}));
    return stage;
  }

  // Seconds of each repetition, after warming up; `between` runs after each.
  Result<std::vector<double>> Run(Digests digests, const std::function<Status()>& between) {
    policy_.reset();
    REFIT_ASSIGN_OR_RETURN(policy_, PolicyHost::Start({.rank = PolicyRank(0),
                                                       .source = options_.model,
                                                       .controller = controller_->address(),
                                                       .digests = digests,
                                                       .register_deadline = kRegisterDeadline}));
    std::vector<double> samples;
    for (int i = 0; i < options_.warm_up + options_.repetitions; ++i) {
      REFIT_ASSIGN_OR_RETURN(const double seconds, SendSeconds(*client_, ++syncs_));
      if (i >= options_.warm_up) {
        samples.push_back(seconds);
        REFIT_RETURN_IF_ERROR(between());
      }
    }
    return samples;
  }

 private:
  BenchShmOptions options_;
  int syncs_ = 0;
  std::unique_ptr<ControllerHost> controller_;
  std::unique_ptr<rpc::ControllerClient> client_;
  std::unique_ptr<AgentHost> agent_;
  std::unique_ptr<PolicyHost> policy_;
};

}  // namespace

Result<BenchShmReport> RunBenchShm(const BenchShmOptions& options, const std::function<void(std::string_view)>& note) {
  REFIT_ASSIGN_OR_RETURN(const std::shared_ptr<Source> source, Source::Open(options.model));
  REFIT_ASSIGN_OR_RETURN(const auto loads, source->Cut(stream::PackUnit::kLoad, options.load_bytes));
  BenchShmReport report{.bytes = source->manifest()->total_size(),
                        .tensors = source->manifest()->tensor_count(),
                        .calls = loads->size(),
                        .load_bytes = options.load_bytes,
                        .samples = {},
                        .ceiling_samples = {}};
  std::vector<stream::CopyPlan> plans;
  for (const stream::PackedBucket& load : *loads) {
    plans.push_back(load.copies);
  }
  note(StrCat("reserving memory for ", report.bytes, " bytes in ", report.calls, " loads"));
  const std::vector<Bytes> tensors(source->tensors().begin(), source->tensors().end());
  REFIT_ASSIGN_OR_RETURN(const auto ceiling, device::MemoryCeiling::Create(tensors, std::move(plans)));
  REFIT_RETURN_IF_ERROR(ceiling->Measure().status());  // warm
  note("starting the engine");
  REFIT_ASSIGN_OR_RETURN(const auto stage, Stage::Set(options));
  note("measuring with digests, the ceiling in between");
  REFIT_ASSIGN_OR_RETURN(report.samples, stage->Run(Digests::kOn, [&]() -> Status {
    REFIT_ASSIGN_OR_RETURN(const Duration elapsed, ceiling->Measure());
    report.ceiling_samples.push_back(ToSeconds(elapsed));
    return OkStatus();
  }));
  note("measuring without digests");
  REFIT_ASSIGN_OR_RETURN(const std::vector<double> no_digest, stage->Run(Digests::kOff, [] { return OkStatus(); }));
  report.seconds = Median(report.samples);
  report.seconds_min = *std::min_element(report.samples.begin(), report.samples.end());
  report.seconds_no_digest = Median(no_digest);
  report.ceiling_seconds = Median(report.ceiling_samples);
  return report;
}

}  // namespace refit::runtime
