// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// /generate and /abort_request.

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "refit/base/str.h"
#include "refit/engine/reference/routes.h"
#include "refit/engine/reference/routes_body.h"
#include "refit/exec/random.h"

namespace refit::engine::reference {
namespace {

using nlohmann::json;

struct GenerateCall {
  std::shared_ptr<ScheduledRequest> request = std::make_shared<ScheduledRequest>();
  bool return_log_probabilities = false;
};

// The prompt's tokens, or why there are none.
Result<std::vector<TokenId>> ReadPrompt(const ReferenceEngine& engine, BodyFields& body) {
  if (!body.Has("text")) {
    std::vector<TokenId> prompt;
    for (const std::int64_t id : body.Integers("input_ids")) {
      if (id < 0 || id >= engine.config().vocab_size) {
        return InvalidArgument(
            StrCat("The input_ids ", id, " is outside the vocabulary of ", engine.config().vocab_size));
      }
      prompt.push_back(static_cast<TokenId>(id));
    }
    return prompt;
  }
  const std::string text = body.String("text").value_or("");
  if (engine.tokenizer() == nullptr) {
    return InvalidArgument("this model has no tokenizer.json: send input_ids");
  }
  return engine.tokenizer()->Encode(text);
}

Status ReadSampling(const ReferenceEngine& engine, BodyFields& sampling, ScheduledRequest& request) {
  const std::int64_t new_tokens = sampling.Integer("max_new_tokens", 128);
  const std::int64_t room = engine.config().max_position_count - static_cast<std::int64_t>(request.prompt.size());
  if (request.prompt.empty()) {
    return InvalidArgument("Either text, input_ids or input_embeds should be provided.");
  }
  if (room <= 0) {
    return InvalidArgument(StrCat("The input (", request.prompt.size(),
                                  " tokens) is longer than the model's context length (",
                                  engine.config().max_position_count, " tokens)."));
  }
  SamplingOptions options;
  options.temperature = sampling.Number("temperature", 1.0);
  options.top_p = sampling.Number("top_p", 1.0);
  options.seed = sampling.Has("sampling_seed") ? static_cast<std::uint64_t>(sampling.Integer("sampling_seed", 0))
                                               : exec::RandomId().low;
  if (new_tokens < 0 || options.temperature < 0 || !(options.top_p > 0 && options.top_p <= 1)) {
    return InvalidArgument("max_new_tokens and temperature must not be negative, top_p must be in (0, 1]");
  }
  request.max_new_tokens = static_cast<std::uint32_t>(std::min(new_tokens, room));
  request.sampler = Sampler(options);
  for (const std::int64_t id : sampling.Integers("stop_token_ids")) {
    request.stop_tokens.push_back(static_cast<TokenId>(id));
  }
  if (!sampling.Bool("ignore_eos", false) && engine.config().eos_token >= 0) {
    request.stop_tokens.push_back(static_cast<TokenId>(engine.config().eos_token));
  }
  return OkStatus();
}

// The call, or the answer that refuses it.
std::optional<HttpReply> ReadCall(const ReferenceEngine& engine, const HttpRequest& request, GenerateCall& call) {
  BodyFields body(request.body);
  const std::unique_ptr<BodyFields> sampling = body.Object("sampling_params");
  call.return_log_probabilities = body.Bool("return_logprob", false);
  call.request->rid = body.String("rid").value_or(ToHex(exec::RandomId()));
  const bool stream = body.Bool("stream", false);
  Result<std::vector<TokenId>> prompt = ReadPrompt(engine, body);
  if (body.error()) {
    return body.error();
  }
  if (!prompt.has_value()) {
    return ErrorAnswer(400, prompt.status().message());
  }
  if (stream) {
    return ErrorAnswer(400, "the reference engine does not stream");
  }
  call.request->prompt = *std::move(prompt);
  const Status status = ReadSampling(engine, *sampling, *call.request);
  if (sampling->error()) {
    return sampling->error();
  }
  return status.ok() ? std::nullopt : std::optional(ErrorAnswer(400, status.message()));
}

json FinishReason(const ScheduledRequest& request) {
  switch (request.finish) {
    case ScheduledRequest::Finish::kStop: return {{"type", "stop"}, {"matched", request.output.back()}};
    case ScheduledRequest::Finish::kLength: return {{"type", "length"}, {"length", request.max_new_tokens}};
    default: return {{"type", "abort"}, {"message", "Aborted"}, {"status_code", nullptr}, {"err_type", nullptr}};
  }
}

HttpReply Answer(const ReferenceEngine& engine, const GenerateCall& call) {
  const ScheduledRequest& request = *call.request;
  json meta = {{"id", request.rid},
               {"finish_reason", FinishReason(request)},
               {"prompt_tokens", request.prompt.size()},
               {"completion_tokens", request.output.size()},
               {"cached_tokens", 0},
               {"num_retractions", request.retractions},
               {"weight_version", engine.label()}};  // at the end of the request
  if (engine.options().family == sync::SessionFamily::kC) {
    json spans = json::array();
    for (const VersionSpan& span : request.versions) {
      spans.push_back({{"version", span.version}, {"start", span.start}, {"end", span.end}});
    }
    meta["weight_versions"] = std::move(spans);
  }
  if (call.return_log_probabilities) {
    json chosen = json::array();
    for (std::size_t i = 0; i < request.output.size(); ++i) {
      chosen.push_back({request.log_probabilities[i], request.output[i], nullptr});
    }
    meta["output_token_logprobs"] = std::move(chosen);
  }
  std::string text;
  if (engine.tokenizer() != nullptr) {
    text = engine.tokenizer()->Decode(request.output, checkpoint::Tokenizer::SpecialTokens::kSkip);
  }
  const json body = {{"text", text}, {"output_ids", request.output}, {"meta_info", std::move(meta)}};
  return {200, body.dump(-1, ' ', false, json::error_handler_t::replace)};
}

HttpReply HandleGenerate(ReferenceEngine& engine, const HttpRequest& request) {
  GenerateCall call;
  if (std::optional<HttpReply> refusal = ReadCall(engine, request, call)) {
    return *std::move(refusal);
  }
  if (engine.gate().Enter(call.request->rid) != Gate::Admission::kAdmitted) {
    const json body = {{"object", "error"},
                       {"message", StrCat("Request ", call.request->rid, " was aborted")},
                       {"type", "499"},
                       {"param", nullptr},
                       {"code", 499}};
    return {499, body.dump()};
  }
  engine.scheduler().Submit(call.request);
  const bool done = engine.scheduler().Wait(*call.request);
  engine.gate().Leave();
  if (!done || call.request->finish == ScheduledRequest::Finish::kError) {
    return ErrorAnswer(400, call.request->error);
  }
  return Answer(engine, call);
}

HttpReply HandleAbort(ReferenceEngine& engine, const HttpRequest& request) {
  BodyFields body(request.body);
  const std::string rid = body.String("rid").value_or("");
  const bool all = body.Bool("abort_all", false);
  if (body.error()) {
    return *body.error();
  }
  if (all || !rid.empty()) {
    engine.Abort(all ? "" : rid);
  }
  return {200, "", "text/plain"};
}

constexpr std::array kRoutes = {
    Route{"/generate", Methods::kPostPut, AuthLevel::kNormal, Families::kAll, FaultRoute::kGenerate, HandleGenerate},
    Route{"/abort_request", Methods::kPost, AuthLevel::kAdminOptional, Families::kAll, FaultRoute::kNone, HandleAbort},
};

}  // namespace

std::span<const Route> GenerateRoutes() { return kRoutes; }

}  // namespace refit::engine::reference
