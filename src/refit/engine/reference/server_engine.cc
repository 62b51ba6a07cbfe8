// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/server_engine.h"

#include <cstdio>
#include <filesystem>
#include <set>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/checkpoint/checkpoint.h"
#include "refit/engine/reference/payload_memory.h"

namespace refit::engine::reference {
namespace {

constexpr std::size_t kMaxGeneratorThreads = 8;

Reply DeathOf(const Status& status) { return {ReplyKind::kDeath, status.message()}; }

// Equal payloads, as ranks of one host get them, are parsed once.
struct ParsedLoads {
  std::map<std::string_view, RankLoad> by_pickle;
  std::vector<const RankLoad*> of_rank;
  std::map<std::string, std::shared_ptr<LoadMapping>> memory;
};

Result<ParsedLoads> OpenLoads(const std::vector<std::string>& pickles, std::size_t tp_size, LoadFormat format,
                              GlobalPolicy policy, LoadMappings& mappings) {
  ParsedLoads loads;
  for (std::size_t rank = 0; rank < tp_size; ++rank) {
    if (rank >= pickles.size()) {
      return InvalidArgument("IndexError: list index out of range");
    }
    const std::string& pickle = pickles[REFIT_MUTANT("RC-TEST-02/payload-of-rank-0", rank, 0)];
    auto known = loads.by_pickle.find(pickle);
    if (known == loads.by_pickle.end()) {
      REFIT_ASSIGN_OR_RETURN(RankLoad load, ReadPayload(pickle, format, policy));
      known = loads.by_pickle.emplace(pickle, std::move(load)).first;
    }
    loads.of_rank.push_back(&known->second);
    for (const PayloadStorage& storage : known->second.storages) {
      auto& mapping = loads.memory[storage.shm_name];
      if (mapping == nullptr || mapping->data().size() < storage.data_size) {
        REFIT_ASSIGN_OR_RETURN(mapping, mappings.Open(storage.shm_name, storage.data_size));
      }
    }
  }
  return loads;
}

// One rank's install: its tensors in order, then its share of every count.
Status InstallOnRank(RankModel& rank, const RankLoad& load, const ParsedLoads& loads) {
  std::vector<LoadMapping*> memory;
  for (const PayloadStorage& storage : load.storages) {
    memory.push_back(loads.memory.at(storage.shm_name).get());
  }
  for (const PayloadView& view : load.tensors) {
    const LoadResult result = rank.Load(view.spec, memory[view.storage]->data().subspan(view.offset, view.size));
    if (result.outcome == LoadOutcome::kFatal) {
      return Internal(result.message);
    }
    if (result.outcome == LoadOutcome::kIgnored && !result.message.empty()) {
      std::fprintf(stderr, "refit-engine: warning: %s\n", result.message.c_str());
    }
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    REFIT_RETURN_IF_ERROR(memory[i]->LetGo(load.storages[i].uses));
  }
  return OkStatus();
}

}  // namespace

std::string_view DefaultVersion(sync::SessionFamily family) {
  switch (family) {
    case sync::SessionFamily::kA: return "0.5.17";
    case sync::SessionFamily::kB: return "0.5.17.dev30+g3003d70f6";
    case sync::SessionFamily::kC: return "0.5.23";
  }
  return "";
}

ReferenceEngine::ReferenceEngine(EngineOptions options) : options_(std::move(options)), session_(options_.family) {
  if (options_.version.empty()) {
    options_.version = DefaultVersion(options_.family);
  }
}

Result<std::unique_ptr<ReferenceEngine>> ReferenceEngine::Make(EngineOptions options) {
  std::unique_ptr<ReferenceEngine> engine(new ReferenceEngine(std::move(options)));
  REFIT_RETURN_IF_ERROR(engine->LoadModel());
  const std::size_t cores = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  REFIT_ASSIGN_OR_RETURN(engine->generator_,
                         Generator::Make(engine->rank_pointers(), std::min(cores, kMaxGeneratorThreads)));
  if (std::filesystem::exists(std::filesystem::path(engine->options_.model_folder) / "tokenizer.json")) {
    REFIT_ASSIGN_OR_RETURN(engine->tokenizer_, checkpoint::Tokenizer::Open(engine->options_.model_folder));
  }
  engine->crew_ = std::make_unique<RankCrew>(engine->ranks_.size());
  engine->scheduler_ = std::make_unique<Scheduler>(engine->generator_.get());
  return engine;
}

Status ReferenceEngine::LoadModel() {
  REFIT_ASSIGN_OR_RETURN(const weights::ModelConfig config, checkpoint::ReadModelConfig(options_.model_folder));
  REFIT_RETURN_IF_ERROR(weights::CheckTpSize(config, options_.tp_size));
  std::unique_ptr<checkpoint::Checkpoint> source;
  if (options_.load_source == LoadSource::kCheckpoint) {
    REFIT_ASSIGN_OR_RETURN(source, checkpoint::Checkpoint::Open(options_.model_folder));
  }
  for (std::int64_t rank = 0; rank < options_.tp_size; ++rank) {
    const weights::TpShard shard{TpRank(static_cast<std::uint32_t>(rank)), options_.tp_size};
    REFIT_ASSIGN_OR_RETURN(RankModel model, RankModel::Make(config, shard));
    if (source != nullptr) {
      REFIT_RETURN_IF_ERROR(model.LoadFromCheckpoint(*source));
    } else {
      model.FillRandom(options_.random_seed);
    }
    ranks_.push_back(std::move(model));
  }
  return OkStatus();
}

ReferenceEngine::~ReferenceEngine() {
  Stop();
  if (undertaker_.joinable()) {
    undertaker_.join();
  }
}

void ReferenceEngine::Pause(PauseMode mode) {
  const bool abort = mode == PauseMode::kAbort;
  gate_.Pause(abort ? Gate::Drain::kAbort : Gate::Drain::kNo, options_.pause_poll, [&] {
    scheduler_->Pause(mode);
    scheduler_->Between([&](Occupancy) { session_.Pause(mode); });
  });
}

void ReferenceEngine::Continue() {
  gate_.Continue([this] {
    scheduler_->Between([this](Occupancy) {
      session_.Continue();
      mappings_.Clear();  // a refit is over: hold no sender's memory any longer
    });
    scheduler_->Continue();
  });
}

Reply ReferenceEngine::Flush(Duration timeout) {
  const auto kind = timeout > Duration::zero() ? Session::FlushKind::kWaiting : Session::FlushKind::kAtOnce;
  if (kind == Session::FlushKind::kWaiting && !scheduler_->WaitIdle(timeout)) {
    return {ReplyKind::kRefused, "Timed out waiting for idle state."};
  }
  Reply reply;
  scheduler_->Between([&](Occupancy occupancy) {
    if (!session_.CanFlush(occupancy, kind)) {
      reply = {ReplyKind::kRefused, "Flush cache failed.\n"};
    }
  });
  return reply;
}

Reply ReferenceEngine::Begin() {
  Reply reply;
  gate_.RunUpdate([&] { scheduler_->Between([&](Occupancy) { reply = session_.Begin(); }); });
  return reply;
}

Reply ReferenceEngine::End() {
  Reply reply;
  gate_.RunUpdate([&] { scheduler_->Between([&](Occupancy) { reply = session_.End(); }); });
  return reply;
}

Reply ReferenceEngine::Update(const UpdateRequest& request) {
  if (request.abort_all_requests) {
    Abort("");
  }
  Reply reply;
  gate_.RunUpdate([&] {
    scheduler_->Between([&](Occupancy occupancy) {
      reply = session_.CheckUpdate();
      if (reply.kind == ReplyKind::kOk) {
        reply = Install(request);
      }
      if (reply.kind == ReplyKind::kOk && request.flush_cache) {
        reply = session_.FlushAfterUpdate(occupancy);
      }
    });
  });
  if (reply.kind != ReplyKind::kOk) {
    return reply;
  }
  reply.message = "Success";
  if (request.weight_version.has_value()) {
    SetLabel(*request.weight_version);
    reply.message += StrCat(" Weight version updated to ", *request.weight_version, ".");
  }
  return reply;
}

Reply ReferenceEngine::Install(const UpdateRequest& request) {
  LoadFormat format = LoadFormat::kNamedTensors;
  if (request.load_format == "flattened_bucket") {
    format = LoadFormat::kFlattenedBucket;
  } else if (request.load_format.has_value()) {
    return {ReplyKind::kDeath, StrCat("NotImplementedError: Unknown load_format=", *request.load_format)};
  }
  const GlobalPolicy policy =
      options_.family == sync::SessionFamily::kC ? GlobalPolicy::kExactNames : GlobalPolicy::kModulePrefixes;
  const Result<ParsedLoads> loads = OpenLoads(request.pickles, ranks_.size(), format, policy, mappings_);
  if (!loads.has_value()) {
    return DeathOf(loads.status());
  }
  return RunOnRanks(
      [&](RankModel& rank, std::size_t index) { return InstallOnRank(rank, *loads->of_rank[index], *loads); });
}

Reply ReferenceEngine::RunOnRanks(const std::function<Status(RankModel& rank, std::size_t index)>& work) {
  std::vector<Status> results(ranks_.size());
  crew_->RunOnAll([&](std::size_t rank) { results[rank] = work(ranks_[rank], rank); });
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (!results[rank].ok()) {
      return {ReplyKind::kDeath, StrCat("TP", rank, ": ", results[rank].message())};
    }
  }
  return {};
}

void ReferenceEngine::SetLabel(const std::string& label) {
  {
    const std::lock_guard lock(mutex_);
    label_ = label;
  }
  scheduler_->SetLabel(label);
}

std::string ReferenceEngine::label() const {
  const std::lock_guard lock(mutex_);
  return label_;
}

void ReferenceEngine::Abort(std::string_view rid_prefix) {
  gate_.AbortHeld(rid_prefix);
  scheduler_->Abort(rid_prefix);
}

Reply ReferenceEngine::Release(const std::vector<std::string>& tags) {
  Reply reply;
  scheduler_->Between([&](Occupancy occupancy) {
    reply = session_.Release(tags, occupancy);
    if (reply.kind == ReplyKind::kOk && session_.released("weights") &&
        options_.memory_saver == EngineOptions::MemorySaver::kOn && !ranks_.front().released()) {
      reply = RunOnRanks([](RankModel& rank, std::size_t) {
        rank.Release();
        return OkStatus();
      });
    }
  });
  return reply;
}

Reply ReferenceEngine::Resume(const std::vector<std::string>& tags) {
  Reply reply;
  scheduler_->Between([&](Occupancy) {
    reply = session_.Resume(tags);
    if (reply.kind == ReplyKind::kOk && !session_.released("weights") && ranks_.front().released()) {
      reply = RunOnRanks([](RankModel& rank, std::size_t) {
        rank.Resume();
        return OkStatus();
      });
    }
  });
  return reply;
}

Reply ReferenceEngine::Snapshot() {
  Reply reply;
  scheduler_->Between([&](Occupancy) {
    reply = RunOnRanks([](RankModel& rank, std::size_t) {
      rank.Snapshot();
      return OkStatus();
    });
  });
  return reply;
}

Reply ReferenceEngine::ResetTensors() {
  Reply reply;
  scheduler_->Between([&](Occupancy) {
    const std::uint64_t seed = ++resets_;
    reply = RunOnRanks([&](RankModel& rank, std::size_t) {
      rank.ResetTensors(seed);
      return OkStatus();
    });
  });
  return reply;
}

Reply ReferenceEngine::Compare() {
  Reply reply;
  scheduler_->Between([&](Occupancy) {
    std::vector<Status> results(ranks_.size());
    crew_->RunOnAll([&](std::size_t rank) { results[rank] = ranks_[rank].Compare(); });
    if (!results[0].ok()) {  // as on every release: what other ranks found is not reported (§1.6)
      reply = {ReplyKind::kRefused, results[0].message()};
    } else if (options_.family != sync::SessionFamily::kA) {
      reply = RunOnRanks([](RankModel& rank, std::size_t) {
        rank.DropSnapshot();
        return OkStatus();
      });
    }
  });
  return reply;
}

std::vector<std::map<std::string, std::string>> ReferenceEngine::Checksums() {
  std::vector<std::map<std::string, std::string>> sums(ranks_.size());
  scheduler_->Between(
      [&](Occupancy) { crew_->RunOnAll([&](std::size_t rank) { sums[rank] = ranks_[rank].Checksums(); }); });
  return sums;
}

Result<RankModel::HfRows> ReferenceEngine::RowsByName(std::string_view name, std::size_t row_limit) {
  std::optional<Result<RankModel::HfRows>> rows;
  scheduler_->Between([&](Occupancy) { rows = RankModel::RowsByHfName(rank_pointers(), name, row_limit); });
  return *std::move(rows);
}

std::vector<const RankModel*> ReferenceEngine::rank_pointers() const {
  std::vector<const RankModel*> ranks;
  for (const RankModel& rank : ranks_) {
    ranks.push_back(&rank);
  }
  return ranks;
}

void ReferenceEngine::Die(std::string_view why) {
  const std::lock_guard lock(mutex_);
  if (dead_.exchange(true)) {
    return;
  }
  std::fprintf(stderr, "refit-engine: scheduler hit an exception: %.*s\n", static_cast<int>(why.size()), why.data());
  std::fprintf(stderr, "refit-engine: dead; the port hangs for %.2f s\n", ToSeconds(options_.crash_hang));
  undertaker_ = std::thread([this] {
    if (Sleep(options_.crash_hang) && options_.end_process) {
      options_.end_process();
    }
  });
}

void ReferenceEngine::Hang() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_; });
}

bool ReferenceEngine::Sleep(Duration duration) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, duration, [this] { return stopping_; });
}

void ReferenceEngine::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  gate_.Stop();
  if (scheduler_ != nullptr) {
    scheduler_->Stop();
  }
}

}  // namespace refit::engine::reference
