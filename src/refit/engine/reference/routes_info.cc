// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the server says about itself, and whether it lives.

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "refit/engine/reference/routes.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"

namespace refit::engine::reference {
namespace {

using nlohmann::json;
using sync::SessionFamily;

HttpReply Json(const json& value) { return {200, value.dump(-1, ' ', false, json::error_handler_t::replace)}; }
HttpReply Empty(int status) { return {status, "", "text/plain"}; }

std::string LoadFormatName(const ReferenceEngine& engine) {
  return engine.options().load_source == LoadSource::kDummy ? "dummy" : "auto";
}

HttpReply HandleServerInfo(ReferenceEngine& engine, const HttpRequest&) {
  const EngineOptions& options = engine.options();
  const std::string label = engine.label();
  engine.scheduler().Between([](Occupancy) {});  // it goes through the scheduler: busy means late
  return Json({{"version", options.version},
               {"model_path", options.model_folder},
               {"tokenizer_path", options.model_folder},
               {"tp_size", options.tp_size},
               {"dp_size", 1},
               {"pp_size", 1},
               {"ep_size", 1},
               {"nnodes", 1},
               {"node_rank", 0},
               {"enable_dp_attention", false},
               {"speculative_algorithm", nullptr},
               {"enable_memory_saver", options.memory_saver == EngineOptions::MemorySaver::kOn},
               {"quantization", nullptr},
               {"load_format", LoadFormatName(engine)},
               {"device", "cpu"},
               {"weight_version", label},
               {"random_seed", options.random_seed},
               {"internal_states", json::array({{{"weight_version", label}}})},
               {"served_by", "refit-engine"}});  // the one field that no SGLang has
}

HttpReply HandleModelInfo(ReferenceEngine& engine, const HttpRequest&) {
  const auto architecture = engine.config().architecture;
  const char* type = architecture == weights::Architecture::kLlama   ? "llama"
                     : architecture == weights::Architecture::kQwen3 ? "qwen3"
                                                                     : "qwen3_moe";
  return Json({{"model_path", engine.options().model_folder},
               {"tokenizer_path", engine.options().model_folder},
               {"is_generation", true},
               {"preferred_sampling_params", nullptr},
               {"weight_version", engine.label()},
               {"has_image_understanding", false},
               {"has_audio_understanding", false},
               {"model_type", type},
               {"architectures", json::array({weights::ToString(architecture)})},
               {"load_format", LoadFormatName(engine)}});
}

// One generated token answers it, but so does any other message of the scheduler; it always waits out its interval.
HttpReply HandleHealth(ReferenceEngine& engine, const HttpRequest&) {
  const EngineOptions& options = engine.options();
  const std::uint64_t before = engine.scheduler().message_count();
  const Instant deadline = exec::Now() + options.health_timeout;
  auto probe = std::make_shared<ScheduledRequest>();
  probe->rid = "HEALTH_CHECK_" + ToHex(exec::RandomId());
  probe->prompt = {0};
  probe->max_new_tokens = 1;
  bool entered = false;
  int status = 503;
  while (status == 503 && exec::Now() < deadline) {
    if (!entered && engine.gate().TryEnter()) {  // closed while paused: then it is held like any request
      entered = true;
      engine.scheduler().Submit(probe);
    }
    if (!engine.Sleep(options.health_wait)) {
      break;
    }
    status = engine.scheduler().message_count() != before ? 200 : 503;
  }
  if (entered) {
    engine.scheduler().Abort(probe->rid);
    engine.gate().Leave();
  }
  return Empty(status);
}

HttpReply HandleLoads(ReferenceEngine& engine, const HttpRequest&) {
  Occupancy now;
  engine.scheduler().Between([&now](Occupancy occupancy) { now = occupancy; });
  return Json({{"version", engine.options().version},
               {"loads", json::array({{{"dp_rank", 0},
                                       {"num_running_reqs", now.running},
                                       {"num_waiting_reqs", now.waiting},
                                       {"num_total_reqs", now.running + now.waiting}}})}});
}

HttpReply HandlePing(ReferenceEngine&, const HttpRequest&) { return Empty(200); }

HttpReply HandleReady(ReferenceEngine& engine, const HttpRequest&) { return Empty(engine.gate().paused() ? 503 : 200); }

HttpReply HandleParallelism(ReferenceEngine& engine, const HttpRequest& request) {
  const auto found = request.query.find("rank");
  std::int64_t rank = 0;
  while (rank < engine.options().tp_size && found != request.query.end() && std::to_string(rank) != found->second) {
    ++rank;
  }
  if (rank == engine.options().tp_size) {
    return ErrorAnswer(400, "no such rank");
  }
  return Json({{"tp_size", engine.options().tp_size},
               {"tp_rank", rank},
               {"pp_size", 1},
               {"pp_rank", 0},
               {"ep_size", 1},
               {"ep_rank", 0},
               {"dp_size", 1},
               {"dp_rank", 0},
               {"world_size", engine.options().tp_size},
               {"global_rank", rank},
               {"local_rank", rank}});
}

constexpr auto kAll = Families::kAll;
constexpr auto kNormal = AuthLevel::kNormal;
constexpr std::array kRoutes = {
    Route{"/health", Methods::kGet, AuthLevel::kOpen, kAll, FaultRoute::kHealth, HandleHealth},
    Route{"/health_generate", Methods::kGet, AuthLevel::kOpen, kAll, FaultRoute::kHealth, HandleHealth},
    Route{"/server_info", Methods::kGet, kNormal, kAll, FaultRoute::kServerInfo, HandleServerInfo},
    Route{"/get_server_info", Methods::kGet, kNormal, kAll, FaultRoute::kServerInfo, HandleServerInfo},
    Route{"/model_info", Methods::kGet, kNormal, kAll, FaultRoute::kNone, HandleModelInfo},
    Route{"/get_model_info", Methods::kGet, kNormal, kAll, FaultRoute::kNone, HandleModelInfo},
    Route{"/v1/loads", Methods::kGet, kNormal, kAll, FaultRoute::kNone, HandleLoads},
    Route{"/ping", Methods::kGetPost, kNormal, kAll, FaultRoute::kNone, HandlePing},
    Route{"/ready", Methods::kGet, kNormal, Families::kOnlyC, FaultRoute::kNone, HandleReady},
    Route{"/parallelism_config", Methods::kGet, AuthLevel::kAdminOptional, Families::kOnlyB, FaultRoute::kNone,
          HandleParallelism},
};

}  // namespace

std::span<const Route> InfoRoutes() { return kRoutes; }

}  // namespace refit::engine::reference
