// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/sglang_engine.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/engine/sglang/payload_pickle.h"
#include "refit/engine/sglang/server_version.h"
#include "refit/engine/sglang/sglang_answer.h"
#include "refit/exec/clock.h"
#include "refit/http/client.h"

namespace refit::engine::sglang {
namespace {

using Json = nlohmann::json;
using sync::Answer;
using sync::AnswerKind;
using sync::Operation;

constexpr ByteCount kControlLimit = 64 * kKiB;
constexpr ByteCount kReportLimit = 64 * kMiB;  // checksums of all parameters of all ranks; server information
constexpr std::string_view kLoadsPath = "/v1/loads?include=core";
constexpr const char* kApiKeyRemedy = "name the file with its API key: --api-key-file";
constexpr const char* kAdminKeyRemedy =
    "name the file with its admin key: --admin-api-key-file, or --api-key-file where it has one key";

struct Route {
  const char* path;
  std::string body;  // empty: GET
  SuccessForm form;
  MissingRoute missing = MissingRoute::kIsRefusal;
};

Route RouteOf(Operation operation, WeightVersion label, sync::PauseMode mode) {
  switch (operation) {
    case Operation::kOnloadWeights:
      return {"/resume_memory_occupation", R"({"tags":["weights"]})", SuccessForm::kNullOrObject};
    case Operation::kOnloadKvCache:
      return {"/resume_memory_occupation", R"({"tags":["kv_cache","cuda_graph"]})", SuccessForm::kNullOrObject};
    case Operation::kRelease:  // all that the two onloads bring back: resuming a tag that was kept kills the server
      return {"/release_memory_occupation", R"({"tags":["kv_cache","weights","cuda_graph"]})",
              SuccessForm::kNullOrObject};
    case Operation::kPause:
      return {"/pause_generation", StrCat(R"({"mode":")", mode == sync::PauseMode::kAbort ? "abort" : "retract", "\"}"),
              SuccessForm::kObject};
    case Operation::kResume: return {"/continue_generation", R"({"torch_empty_cache":false})", SuccessForm::kObject};
    case Operation::kFlush: return {"/flush_cache?timeout=0", "", SuccessForm::kText};
    case Operation::kBegin:
      return {"/begin_weight_update", R"({"selector":"all"})", SuccessForm::kSuccessField, MissingRoute::kIsNotFound};
    case Operation::kEnd: return {"/end_weight_update", "{}", SuccessForm::kSuccessField};
    case Operation::kLabel:
      return {"/update_weight_version", StrCat(R"({"new_version":")", label, R"(","abort_all_requests":false})"),
              SuccessForm::kSuccessField};
    case Operation::kUpdate: return {"/update_weights_from_tensor", "", SuccessForm::kSuccessField};
  }
  return {"/", "", SuccessForm::kSuccessField};
}

// Whatever a wrong payload does, it does to the whole server: nothing in the engine catches it. So none is sent.
Status CheckPayload(const RankPayload& payload) {
  const auto* const cuda = std::get_if<CudaLoad>(&payload.load);
  const auto* const host = std::get_if<HostLoad>(&payload.load);
  const std::string& name = cuda != nullptr ? cuda->counter_name : host->shm_name;
  const ByteCount load_size = cuda != nullptr ? cuda->load_size : host->data_size;
  if (name.size() > kMaxShmNameSize) {
    return InvalidArgument(StrCat("the load's name ", name, " is longer than ", kMaxShmNameSize, " bytes"));
  }
  for (const PayloadTensor& tensor : payload.tensors) {
    REFIT_ASSIGN_OR_RETURN(const ByteCount size, weights::SizeOf(tensor.spec));
    const std::optional<ByteCount> end = CheckedAdd(tensor.offset, size);
    if (!end || *end > load_size) {
      return InvalidArgument(
          StrCat(weights::ToString(tensor.spec), " at ", tensor.offset, " leaves its load of ", load_size, " bytes"));
    }
    if (tensor.offset % weights::ItemSize(tensor.spec.dtype) != 0) {
      return InvalidArgument(StrCat(weights::ToString(tensor.spec), " at ", tensor.offset, " is not aligned"));
    }
  }
  return OkStatus();
}

bool SamePayload(const RankPayload& a, const RankPayload& b) {
  return a.load == b.load &&
         std::ranges::equal(a.tensors, b.tensors, [](const PayloadTensor& x, const PayloadTensor& y) {
           return x.offset == y.offset && x.spec == y.spec;
         });
}

// Element i is for the rank whose tp_rank is i (RC-PAY-03). Ranks that read one load share its text.
std::string UpdateBody(const UpdateCall& call) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < call.ranks.size(); ++i) {
    texts.push_back(i > 0 && SamePayload(call.ranks[i], call.ranks[i - 1]) ? texts.back()
                                                                           : Base64(PicklePayload(call.ranks[i])));
  }
  const std::size_t first = REFIT_MUTANT("RC-PAY-03/rotate", std::size_t{0}, std::size_t{1});
  std::string body = R"({"serialized_named_tensors":[)";
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::size_t at = REFIT_MUTANT("RC-PAY-03/reverse", i, texts.size() - 1 - i);
    body += i == 0 ? "\"" : ",\"";
    body += texts[(at + first) % texts.size()];
    body += '"';
  }
  body += R"(],"load_format":"flattened_bucket","selector":"all","flush_cache":)";
  body += REFIT_MUTANT("RC-PAY-04/flush-with-the-update", "false", "true");
  if (call.label) {
    body += StrCat(R"(,"weight_version":")", *call.label, '"');
  }
  body += '}';
  return body;
}

// What users of the server call too; everything else is a control call, which the admin key guards where there is one.
bool IsOpenToUsers(std::string_view path) {
  constexpr std::string_view kPaths[] = {kLoadsPath,         "/generate",   "/server_info",
                                         "/get_server_info", "/model_info", "/get_model_info"};
  return std::ranges::find(kPaths, path) != std::end(kPaths);
}

// A whole number that the server calls `key`; `absent` where it has none.
Result<std::uint32_t> NumberOf(const Json& object, const char* key, std::optional<std::uint32_t> absent) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) {
    if (absent) {
      return *absent;
    }
    return FailedPrecondition(StrCat("the engine's answer has no ", key));
  }
  if (!found->is_number_integer() || found->get<std::int64_t>() < 0 || found->get<std::int64_t>() > 1'000'000) {
    return FailedPrecondition(StrCat("the engine's answer has a bad ", key, ": ", CapMessage(found->dump())));
  }
  return found->get<std::uint32_t>();
}

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? CapMessage(found->get_ref<const std::string&>()) : "";
}

Result<RankHashes> HashesOf(const Json& entry) {
  const auto malformed = [](std::string_view what) {
    return Unavailable(StrCat("the engine's checksum answer has a rank without ", what));
  };
  if (!entry.is_object() || !entry.contains("checksums") || !entry["checksums"].is_object()) {
    return malformed("checksums");
  }
  // One object up to 0.5.20, then a list of them with roles.
  Json parallelism = entry.value("parallelism_info", Json());
  if (parallelism.is_array() && !parallelism.empty()) {
    parallelism = Json(parallelism.front());
  }
  if (!parallelism.is_object() || !parallelism.value("tp_rank", Json()).is_number_unsigned()) {
    return malformed("tp_rank");
  }
  RankHashes hashes{.rank = TpRank(parallelism["tp_rank"].get<std::uint32_t>()), .hashes = {}};
  for (const auto& [name, hash] : entry["checksums"].items()) {
    if (!hash.is_string() || hash.get_ref<const std::string&>().size() != 16 ||
        !FromHex(hash.get_ref<const std::string&>())) {
      return malformed(StrCat("a hash of 16 hexadecimal digits for ", CapMessage(name)));
    }
    hashes.hashes.emplace(name, hash.get<std::string>());
  }
  return hashes;
}

class SglangEngine final : public Engine {
 public:
  explicit SglangEngine(SglangOptions options) : options_(std::move(options)) {}

  Result<EngineDescription> Describe(Duration deadline) override;
  Answer Call(Operation operation, WeightVersion label, Duration deadline) override;
  Answer Update(const UpdateCall& call, Duration deadline) override;
  Result<std::vector<RankHashes>> Checksums(Duration deadline) override;
  Status Probe(Duration deadline) override;
  Result<std::uint64_t> RequestsInFlight(Duration deadline) override;
  Result<Generation> Generate(const GenerateRequest& request, Duration deadline) override;

 private:
  // connection: of calls that follow each other at once; null: a fresh one.
  Answer Mutate(const Route& route, Duration deadline, http::Connection* connection);
  // For a control route that may be missing.
  Result<http::Response> SendWhereItMayBeMissing(std::string_view path, const std::string& body, Instant deadline);
  // Whether the routes of a refit are there, and our key opens them. Changes nothing.
  Status CheckRoutes(std::string_view version, Instant deadline);
  // The JSON object of a 200 answer.
  Result<Json> Ask(std::string_view path, std::string body, Instant deadline);
  // As Ask, under the path's old name where the first is missing.
  Result<Json> AskEither(std::string_view path, std::string_view old_path, Instant deadline);
  Result<http::Response> Send(std::string_view path, std::string body, Duration deadline, ByteCount limit,
                              http::Connection* connection = nullptr);
  Result<http::Response> SendWith(const std::string& key, std::string_view path, std::string body, Duration deadline,
                                  ByteCount limit, http::Connection* connection);

  SglangOptions options_;
  http::Connection updates_;
};

Result<http::Response> SglangEngine::Send(std::string_view path, std::string body, Duration deadline, ByteCount limit,
                                          http::Connection* connection) {
  return SendWith(IsOpenToUsers(path) ? options_.api_key : options_.admin_key, path, std::move(body), deadline, limit,
                  connection);
}

Result<http::Response> SglangEngine::SendWith(const std::string& key, std::string_view path, std::string body,
                                              Duration deadline, ByteCount limit, http::Connection* connection) {
  if (deadline <= Duration::zero()) {
    return DeadlineExceeded(StrCat(options_.url, path, ": no time left"));
  }
  const http::Request request{.url = StrCat(options_.url, path),
                              .body = std::move(body),
                              .bearer = key,
                              .deadline = deadline,
                              .body_limit = limit};
  return connection == nullptr ? http::Send(request) : connection->Send(request);
}

// A path without a route is guarded by the API key, not by the admin key (docs/spec/sglang-wire.md §1.0): where the
// server has both, 401 hides the 404. A call that got 401 was not carried out, so it may be sent again.
Result<http::Response> SglangEngine::SendWhereItMayBeMissing(std::string_view path, const std::string& body,
                                                             Instant deadline) {
  REFIT_ASSIGN_OR_RETURN(http::Response response, Send(path, body, deadline - exec::Now(), kControlLimit));
  const bool hides = response.status == 401 && options_.api_key != options_.admin_key;
  if (REFIT_MUTANT("RC-RPC-01/401-means-401", !hides, true)) {
    return response;
  }
  REFIT_ASSIGN_OR_RETURN(http::Response again,
                         SendWith(options_.api_key, path, body, deadline - exec::Now(), kControlLimit, nullptr));
  return again.status == 401 || again.status == 403 ? std::move(response) : std::move(again);
}

Answer SglangEngine::Mutate(const Route& route, Duration deadline, http::Connection* connection) {
  const Instant start = exec::Now();
  const Result<http::Response> response = route.missing == MissingRoute::kIsNotFound
                                              ? SendWhereItMayBeMissing(route.path, route.body, start + deadline)
                                              : Send(route.path, route.body, deadline, kControlLimit, connection);
  Answer answer = response.has_value() ? Judge(*response, route.form, route.missing)
                                       : Answer{AnswerKind::kNone, CapMessage(response.status().message())};
  answer.elapsed = exec::Now() - start;
  return answer;
}

Answer SglangEngine::Call(Operation operation, WeightVersion label, Duration deadline) {
  REFIT_CHECK(operation != Operation::kUpdate, "an update has a payload");
  return Mutate(RouteOf(operation, label, options_.pause_mode), deadline, nullptr);
}

Answer SglangEngine::Update(const UpdateCall& call, Duration deadline) {
  if (call.ranks.empty()) {
    return {AnswerKind::kRefused, "not sent: an update without payloads"};
  }
  for (const RankPayload& payload : call.ranks) {
    if (const Status status = CheckPayload(payload); !status.ok()) {
      return {AnswerKind::kRefused, StrCat("not sent: ", status.message())};
    }
  }
  Route route = RouteOf(Operation::kUpdate, WeightVersion(0), options_.pause_mode);
  route.body = UpdateBody(call);
  Answer answer = Mutate(route, deadline, &updates_);
  if (answer.kind != AnswerKind::kOk && !call.ranks.front().tensors.empty()) {
    const std::vector<PayloadTensor>& tensors = call.ranks.front().tensors;
    answer.message +=
        StrCat("; it was to load ", tensors.size(), " tensors, ", CapMessage(tensors.front().spec.name), " first");
  }
  return answer;
}

Result<Json> SglangEngine::Ask(std::string_view path, std::string body, Instant deadline) {
  REFIT_ASSIGN_OR_RETURN(const http::Response response,
                         Send(path, std::move(body), deadline - exec::Now(), kReportLimit));
  const auto failed = [&](StatusCode code, std::string remedy = {}) {
    return Status(code, StrCat(options_.url, path, " answered ", response.status, ": ", EngineMessage(response)),
                  std::move(remedy));
  };
  switch (response.status) {
    case 200: break;
    case 401:
    case 403: return failed(StatusCode::kPermissionDenied, IsOpenToUsers(path) ? kApiKeyRemedy : kAdminKeyRemedy);
    case 404: return failed(StatusCode::kNotFound, "only an SGLang server of 0.5.9 or later can be refitted");
    default: return failed(response.status < 500 ? StatusCode::kFailedPrecondition : StatusCode::kUnavailable);
  }
  Json reply = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (!reply.is_object()) {
    return failed(StatusCode::kUnavailable);
  }
  return reply;
}

Result<Json> SglangEngine::AskEither(std::string_view path, std::string_view old_path, Instant deadline) {
  Result<Json> reply = Ask(path, "", deadline);
  if (!reply.has_value() && reply.status().code() == StatusCode::kNotFound) {
    return Ask(old_path, "", deadline);
  }
  return reply;
}

Result<EngineDescription> SglangEngine::Describe(Duration deadline) {
  const Instant until = exec::Now() + deadline;
  REFIT_ASSIGN_OR_RETURN(const Json server, AskEither("/server_info", "/get_server_info", until));
  REFIT_ASSIGN_OR_RETURN(const Json model, AskEither("/model_info", "/get_model_info", until));
  EngineDescription description;
  description.version = TextOf(server, "version");
  REFIT_ASSIGN_OR_RETURN(description.family, FamilyOfVersion(description.version));
  REFIT_ASSIGN_OR_RETURN(description.tp_size, NumberOf(server, "tp_size", std::nullopt));
  REFIT_ASSIGN_OR_RETURN(description.dp_size, NumberOf(server, "dp_size", 1));
  REFIT_ASSIGN_OR_RETURN(description.pp_size, NumberOf(server, "pp_size", 1));
  REFIT_ASSIGN_OR_RETURN(description.node_count, NumberOf(server, "nnodes", 1));
  if (description.tp_size == 0) {
    return FailedPrecondition("the engine's /server_info has tp_size 0");
  }
  REFIT_ASSIGN_OR_RETURN(description.ep_size, NumberOf(server, "ep_size", 1));
  // From 0.5.22 dp_size counts replicas only, and attention that is split over data has a name of its own.
  REFIT_ASSIGN_OR_RETURN(const std::uint32_t attention_dp, NumberOf(server, "attn_dp_size", 1));
  description.dp_size = std::max(description.dp_size, attention_dp);
  description.memory_saver = server.value("enable_memory_saver", Json()) == true ? EngineDescription::MemorySaver::kOn
                                                                                 : EngineDescription::MemorySaver::kOff;
  REFIT_ASSIGN_OR_RETURN(description.tokenizer_workers, NumberOf(server, "tokenizer_worker_num", 1));
  // "cuda", also "cuda:0"; settled D8.
  description.hash_kind =
      TextOf(server, "device").starts_with("cuda") ? ParameterHashKind::kGpu : ParameterHashKind::kSha256Prefix;
  description.speculative_algorithm = TextOf(server, "speculative_algorithm");
  description.kv_storage = TextOf(server, "hicache_storage_backend");
  description.quantization = TextOf(server, "quantization");
  description.model_path = TextOf(model, "model_path");
  description.weight_version = TextOf(model, "weight_version");
  REFIT_RETURN_IF_ERROR(CheckRoutes(description.version, until));
  return description;
}

// Bodies that lack a required field: refused before anything is done, if there is such a route.
Status SglangEngine::CheckRoutes(std::string_view version, Instant deadline) {
  for (const char* path : {"/update_weights_from_tensor", "/update_weight_version"}) {
    REFIT_ASSIGN_OR_RETURN(const http::Response response, SendWhereItMayBeMissing(path, "{}", deadline));
    const std::string said = StrCat(options_.url, path, " answered ", response.status, ": ", EngineMessage(response));
    switch (response.status) {
      case 400: break;
      case 401:
      case 403: return {StatusCode::kPermissionDenied, said, kAdminKeyRemedy};
      case 404:
        return FailedPrecondition(StrCat("SGLang ", version, " has no route ", path, ": ", said),
                                  "a refit needs it: use 0.5.17 or later");
      default: return {response.status < 500 ? StatusCode::kFailedPrecondition : StatusCode::kUnavailable, said};
    }
  }
  return OkStatus();
}

Result<std::vector<RankHashes>> SglangEngine::Checksums(Duration deadline) {
  REFIT_ASSIGN_OR_RETURN(const Json reply, Ask("/weights_checker", R"({"action":"checksum"})", exec::Now() + deadline));
  const auto ranks = reply.find("ranks");
  if (reply.value("success", Json()) != true || ranks == reply.end() || !ranks->is_array() || ranks->empty()) {
    return Unavailable("the engine's checksum answer has no ranks");
  }
  std::vector<RankHashes> all;
  for (const Json& entry : *ranks) {
    REFIT_ASSIGN_OR_RETURN(RankHashes hashes, HashesOf(entry));
    all.push_back(std::move(hashes));
  }
  return all;
}

Status SglangEngine::Probe(Duration deadline) {
  REFIT_ASSIGN_OR_RETURN(const http::Response response, Send("/health_generate", "", deadline, kControlLimit));
  if (response.status != 200) {
    return Unavailable(StrCat(options_.url, "/health_generate answered ", response.status));
  }
  return OkStatus();
}

Result<std::uint64_t> SglangEngine::RequestsInFlight(Duration deadline) {
  REFIT_ASSIGN_OR_RETURN(const Json reply, Ask(kLoadsPath, "", exec::Now() + deadline));
  const auto loads = reply.find("loads");
  if (loads == reply.end() || !loads->is_array() || loads->empty()) {
    return Unavailable(StrCat(options_.url, kLoadsPath, ": the answer has no loads"));
  }
  std::uint64_t requests = 0;
  for (const Json& load : *loads) {  // of each data-parallel rank
    REFIT_ASSIGN_OR_RETURN(const std::uint32_t running, NumberOf(load, "num_running_reqs", std::nullopt));
    REFIT_ASSIGN_OR_RETURN(const std::uint32_t waiting, NumberOf(load, "num_waiting_reqs", std::nullopt));
    requests += std::uint64_t{running} + waiting;
  }
  return requests;
}

Result<Generation> SglangEngine::Generate(const GenerateRequest& request, Duration deadline) {
  Json sampling = {{"max_new_tokens", request.max_new_tokens}, {"temperature", request.temperature}};
  if (request.temperature > 0) {
    sampling["sampling_seed"] = request.seed;
  }
  Json body = {{"sampling_params", sampling}, {"stream", false}};
  if (request.text.empty()) {
    body["input_ids"] = request.token_ids;
  } else {
    body["text"] = request.text;
  }
  std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  REFIT_ASSIGN_OR_RETURN(const Json reply, Ask("/generate", std::move(text), exec::Now() + deadline));
  Generation generation;
  if (const auto found = reply.find("text"); found != reply.end() && found->is_string()) {
    generation.text = found->get<std::string>();
  }
  const auto tokens = reply.find("output_ids");
  if (tokens == reply.end() || !tokens->is_array()) {
    return Unavailable(StrCat(options_.url, "/generate: the answer has no output_ids"));
  }
  for (const Json& token : *tokens) {
    if (!token.is_number_integer() || !std::in_range<std::int32_t>(token.get<std::int64_t>())) {
      return Unavailable(StrCat(options_.url, "/generate: output_ids holds ", CapMessage(token.dump())));
    }
    generation.token_ids.push_back(token.get<std::int32_t>());
  }
  if (const auto meta = reply.find("meta_info"); meta != reply.end() && meta->is_object()) {
    generation.weight_version = TextOf(*meta, "weight_version");
    for (const Json& span : meta->value("weight_versions", Json::array())) {
      REFIT_ASSIGN_OR_RETURN(const std::uint32_t begin, NumberOf(span, "start", std::nullopt));
      REFIT_ASSIGN_OR_RETURN(const std::uint32_t end, NumberOf(span, "end", std::nullopt));
      generation.versions.push_back({TextOf(span, "version"), begin, end});
    }
  }
  return generation;
}

}  // namespace

Result<std::unique_ptr<Engine>> ConnectSglang(SglangOptions options) {
  while (options.url.ends_with('/')) {
    options.url.pop_back();
  }
  if (options.api_key.empty()) {
    options.api_key = options.admin_key;
  }
  if (!options.url.starts_with("http://") && !options.url.starts_with("https://")) {
    return InvalidArgument(StrCat("the engine's URL \"", options.url, "\" has no scheme"), "http://HOST:PORT");
  }
  return std::unique_ptr<Engine>(std::make_unique<SglangEngine>(std::move(options)));
}

}  // namespace refit::engine::sglang
