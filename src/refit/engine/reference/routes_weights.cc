// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Pause, flush, the weight-update session, memory, labels, the checker.

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/hash.h"
#include "refit/engine/reference/routes.h"
#include "refit/engine/reference/routes_body.h"

namespace refit::engine::reference {
namespace {

using nlohmann::json;
using sync::SessionFamily;

const std::vector<std::string_view> kSelectors = {"all", "target", "draft"};

HttpReply Json(int status, const json& value) {
  return {status, value.dump(-1, ' ', false, json::error_handler_t::replace)};
}

HttpReply HandlePause(ReferenceEngine& engine, const HttpRequest& request) {
  BodyFields body(request.body);
  const std::string mode = body.Choice("mode", {"abort", "retract", "in_place"});
  if (body.error()) {
    return *body.error();
  }
  engine.Pause(mode == "abort" ? PauseMode::kAbort : mode == "retract" ? PauseMode::kRetract : PauseMode::kInPlace);
  return Json(200, {{"message", "Generation paused successfully."}, {"status", "ok"}});
}

HttpReply HandleContinue(ReferenceEngine& engine, const HttpRequest& request) {
  BodyFields body(request.body);
  body.Bool("torch_empty_cache", true);
  if (body.error()) {
    return *body.error();
  }
  engine.Continue();
  return Json(200, {{"message", "Generation continued successfully."}, {"status", "ok"}});
}

HttpReply HandleFlush(ReferenceEngine& engine, const HttpRequest& request) {
  double timeout = 0;
  if (const auto found = request.query.find("timeout"); found != request.query.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), timeout);
    if (error != std::errc() || end != text.data() + text.size() || !(timeout >= 0 && timeout <= 1e6)) {
      BodyFields refusal("{}");
      refusal.Fail("greater_than_equal", "timeout", "Input should be greater than or equal to 0");
      return *refusal.error();
    }
  }
  const Reply reply = engine.Flush(FromSeconds(timeout));
  if (reply.kind != ReplyKind::kOk) {
    return {400, reply.message, "text/plain"};
  }
  return {200, "Cache flushed.\nPlease check backend logs for more details.\n", "text/plain"};
}

HttpReply HandleBegin(ReferenceEngine& engine, const HttpRequest& request) {
  BodyFields body(request.body);
  body.Choice("selector", kSelectors);
  return body.error() ? *body.error() : AnswerOf(engine.Begin());
}

HttpReply HandleEnd(ReferenceEngine& engine, const HttpRequest& request) {
  const BodyFields body(request.body);
  return body.error() ? *body.error() : AnswerOf(engine.End());
}

HttpReply HandleUpdate(ReferenceEngine& engine, const HttpRequest& request) {
  BodyFields body(request.body);
  UpdateRequest update;
  update.pickles = body.RequiredBase64("serialized_named_tensors");
  update.load_format = body.String("load_format");
  update.weight_version = body.String("weight_version");
  update.flush_cache = body.Bool("flush_cache", true);
  update.abort_all_requests = body.Bool("abort_all_requests", false);
  if (engine.options().family != SessionFamily::kA) {
    body.Choice("selector", kSelectors);
  }
  return body.error() ? *body.error() : AnswerOf(engine.Update(update));
}

HttpReply HandleLabel(ReferenceEngine& engine, const HttpRequest& request) {
  BodyFields body(request.body);
  const std::string version = body.RequiredString("new_version");
  const bool abort = body.Bool("abort_all_requests", true);
  if (body.error()) {
    return *body.error();
  }
  if (abort) {
    engine.Abort("");
  }
  engine.SetLabel(version);
  return Json(
      200, {{"success", true}, {"message", StrCat("Weight version updated to ", version)}, {"new_version", version}});
}

HttpReply HandleMemory(const HttpRequest& request, const std::function<Reply(const std::vector<std::string>&)>& act) {
  BodyFields body(request.body);
  const std::vector<std::string> tags = body.Strings("tags");
  if (body.error()) {
    return *body.error();
  }
  const Reply reply = act(tags);
  return reply.kind == ReplyKind::kOk ? HttpReply{200, "null"} : AnswerOf(reply);
}

HttpReply HandleRelease(ReferenceEngine& engine, const HttpRequest& request) {
  return HandleMemory(request, [&](const std::vector<std::string>& tags) { return engine.Release(tags); });
}

HttpReply HandleResume(ReferenceEngine& engine, const HttpRequest& request) {
  return HandleMemory(request, [&](const std::vector<std::string>& tags) { return engine.Resume(tags); });
}

json ParallelismInfo(const ReferenceEngine& engine, std::size_t rank) {
  json info = {{"tp_rank", rank}, {"tp_size", engine.options().tp_size},
               {"dp_rank", 0},    {"dp_size", 1},
               {"pp_rank", 0},    {"pp_size", 1},
               {"rank", rank},    {"size", engine.options().tp_size}};
  if (engine.options().family == SessionFamily::kA) {
    return info;
  }
  info["role"] = "target";
  return json::array({std::move(info)});
}

HttpReply Checksum(ReferenceEngine& engine) {
  json ranks = json::array();
  std::string all;
  for (const std::map<std::string, std::string>& sums : engine.Checksums()) {
    std::string joined;
    for (const auto& [name, sum] : sums) {
      joined += name + sum;
    }
    const std::string rank_sum = device::Sha256Hex(AsBytes(joined));
    all += rank_sum;
    ranks.push_back({{"checksums", sums},
                     {"per_gpu_checksum", rank_sum},
                     {"parallelism_info", ParallelismInfo(engine, ranks.size())}});
  }
  return Json(200, {{"success", true},
                    {"message", "Success."},
                    {"ranks", std::move(ranks)},
                    {"per_engine_checksum", device::Sha256Hex(AsBytes(all))}});
}

HttpReply HandleChecker(ReferenceEngine& engine, const HttpRequest& request) {
  BodyFields body(request.body, BodyFields::Empty::kAllowed);
  const std::string action = body.String("action").value_or("checksum");
  if (body.error()) {
    return *body.error();
  }
  Reply reply{ReplyKind::kRefused, StrCat("Unsupported action='", action, "'")};
  if (action == "checksum") {
    return Checksum(engine);
  }
  if (action == "snapshot") {
    reply = engine.Snapshot();
  } else if (action == "reset_tensors") {
    reply = engine.ResetTensors();
  } else if (action == "compare") {
    reply = engine.Compare();
  }
  if (reply.kind == ReplyKind::kOk) {
    reply.message = "Success.";
  }
  return AnswerOf(reply);
}

HttpReply HandleByName(ReferenceEngine& engine, const HttpRequest& request) {
  BodyFields body(request.body);
  const std::string name = body.RequiredString("name");
  const std::int64_t limit = body.Integer("truncate_size", 100);
  if (body.error()) {
    return *body.error();
  }
  if (engine.config().architecture != weights::Architecture::kLlama || limit < 0) {
    return ErrorAnswer(400, "Get parameter by name failed");  // only Llama's model class has it
  }
  const auto rows = engine.RowsByName(name, static_cast<std::size_t>(limit));
  if (!rows.has_value()) {
    return ErrorAnswer(400, "Get parameter by name failed");
  }
  if (rows->shape.size() != 1) {
    return Json(200, rows->rows);
  }
  json numbers = json::array();
  for (const std::vector<float>& row : rows->rows) {
    numbers.push_back(row.front());
  }
  return Json(200, numbers);
}

HttpReply HandleUnsupported(ReferenceEngine&, const HttpRequest& request) {
  return Json(400, {{"success", false},
                    {"message",
                     StrCat("the reference engine has no ", request.path, "; it takes update_weights_from_tensor")}});
}

constexpr auto kAdmin = AuthLevel::kAdminOptional;
constexpr std::array kRoutes = {
    Route{"/update_weights_from_tensor", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kUpdate, HandleUpdate},
    Route{"/begin_weight_update", Methods::kPost, kAdmin, Families::kBAndC, FaultRoute::kBegin, HandleBegin},
    Route{"/end_weight_update", Methods::kPost, kAdmin, Families::kBAndC, FaultRoute::kEnd, HandleEnd},
    Route{"/pause_generation", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kPause, HandlePause},
    Route{"/continue_generation", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kContinue, HandleContinue},
    Route{"/flush_cache", Methods::kGetPost, kAdmin, Families::kAll, FaultRoute::kFlush, HandleFlush},
    Route{"/update_weight_version", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kLabel, HandleLabel},
    Route{"/release_memory_occupation", Methods::kGetPost, kAdmin, Families::kAll, FaultRoute::kRelease, HandleRelease},
    Route{"/resume_memory_occupation", Methods::kGetPost, kAdmin, Families::kAll, FaultRoute::kResumeMemory,
          HandleResume},
    Route{"/weights_checker", Methods::kGetPost, kAdmin, Families::kAll, FaultRoute::kChecksum, HandleChecker},
    Route{"/get_weights_by_name", Methods::kGetPost, kAdmin, Families::kAll, FaultRoute::kNone, HandleByName},
    Route{"/update_weights_from_disk", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kNone, HandleUnsupported},
    Route{"/update_weights_from_distributed", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kNone,
          HandleUnsupported},
    Route{"/update_weights_from_ipc", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kNone, HandleUnsupported},
    Route{"/init_weights_update_group", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kNone, HandleUnsupported},
    Route{"/destroy_weights_update_group", Methods::kPost, kAdmin, Families::kAll, FaultRoute::kNone,
          HandleUnsupported},
};

}  // namespace

std::span<const Route> WeightRoutes() { return kRoutes; }

}  // namespace refit::engine::reference
