// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/sglang_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "refit/engine/sglang/payload_pickle.h"
#include "refit/engine/sglang/server_fit.h"
#include "refit/engine/sglang/server_version.h"
#include "refit/exec/clock.h"
#include "refit/http/server_double.h"

namespace refit::engine::sglang {
namespace {

using Json = nlohmann::json;
using http::RawReply;
using http::Reply;
using http::SeenRequest;
using std::chrono::milliseconds;
using std::chrono::seconds;
using sync::Answer;
using sync::AnswerKind;
using sync::Operation;
using sync::SessionFamily;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr Duration kDeadline = seconds(10);

PayloadTensor Tensor(const std::string& name, ByteCount offset) {
  return {{name, weights::DType::kBfloat16, {2, 3}}, offset};
}

UpdateCall ThreeRanks() {
  UpdateCall call;
  for (const char* name : {"/refit-a", "/refit-b", "/refit-c"}) {
    call.ranks.push_back(
        {.load = HostLoad{.shm_name = name, .data_size = 512}, .tensors = {Tensor("w", 0), Tensor("v", 12)}});
  }
  return call;
}

class SglangEngineTest : public ::testing::Test {
 protected:
  void SetUp() override { Connect({.url = server_.url(), .admin_key = "key", .pause_mode = sync::PauseMode::kAbort}); }
  void Connect(SglangOptions options) {
    auto engine = ConnectSglang(std::move(options));
    ASSERT_TRUE(engine.has_value()) << engine.status().ToString();
    engine_ = *std::move(engine);
  }
  Answer Do(Operation operation, Duration deadline = kDeadline) {
    return operation == Operation::kUpdate ? engine_->Update(ThreeRanks(), deadline)
                                           : engine_->Call(operation, WeightVersion(7), deadline);
  }
  Answer Do(Operation operation, RawReply reply, Duration deadline = kDeadline) {
    server_.Answer("*", std::move(reply));
    return Do(operation, deadline);
  }
  // What a server answers to bodies without their required fields.
  void AnswerRoutes(const RawReply& reply) {
    server_.Answer("/update_weights_from_tensor", reply);
    server_.Answer("/update_weight_version", reply);
  }
  // A server of this description; the routes are there and the key is right.
  Result<EngineDescription> Describe(const std::string& info) {
    server_.Answer("/server_info", Reply(200, info));
    server_.Answer("/model_info", Reply(200, R"({"model_path":"/m","weight_version":"default"})"));
    AnswerRoutes(Reply(400, R"({"object":"error","message":"a field is missing"})"));
    return engine_->Describe(kDeadline);
  }
  http::ServerDouble server_;
  std::unique_ptr<Engine> engine_;
};

struct RouteCase {
  Operation operation;
  const char* request;
  const char* body;     // compared where not null
  const char* success;  // the stock server's
};
const std::vector<RouteCase>& Routes() {
  static const std::vector<RouteCase> routes = {
      {Operation::kPause, "POST /pause_generation", R"({"mode":"abort"})", R"({"message":"paused","status":"ok"})"},
      {Operation::kFlush, "GET /flush_cache?timeout=0", "", "Cache flushed.\nPlease check backend logs for details."},
      {Operation::kBegin, "POST /begin_weight_update", R"({"selector":"all"})", R"({"success":true,"message":"ok"})"},
      {Operation::kUpdate, "POST /update_weights_from_tensor", nullptr, R"({"success":true,"message":"Success"})"},
      {Operation::kEnd, "POST /end_weight_update", "{}", R"({"success":true,"message":"ok"})"},
      {Operation::kLabel, "POST /update_weight_version", R"({"new_version":"7","abort_all_requests":false})",
       R"({"success":true,"message":"","new_version":"7"})"},
      {Operation::kResume, "POST /continue_generation", R"({"torch_empty_cache":false})",
       R"({"message":"continued","status":"ok"})"},
      {Operation::kOnloadWeights, "POST /resume_memory_occupation", R"({"tags":["weights"]})", "null"},
      {Operation::kOnloadKvCache, "POST /resume_memory_occupation", R"({"tags":["kv_cache","cuda_graph"]})", "null"},
      {Operation::kRelease, "POST /release_memory_occupation", R"({"tags":["kv_cache","weights","cuda_graph"]})",
       "null"},
  };
  return routes;
}
bool HasSuccessField(Operation operation) {
  return operation == Operation::kBegin || operation == Operation::kUpdate || operation == Operation::kEnd ||
         operation == Operation::kLabel;
}

TEST_F(SglangEngineTest, EachOperationSendsItsRequestAndKnowsItsStockSuccess) {
  for (const RouteCase& route : Routes()) {
    const Answer answer = Do(route.operation, Reply(200, route.success));
    EXPECT_EQ(answer.kind, AnswerKind::kOk) << route.request << ": " << answer.message;
    EXPECT_GT(answer.elapsed, Duration::zero());
    const SeenRequest seen = server_.last();
    EXPECT_EQ(StrCat(seen.method, " ", seen.path), route.request);
    EXPECT_THAT(seen.head, HasSubstr("Authorization: Bearer key"));
    if (route.body != nullptr) {
      EXPECT_EQ(seen.body, route.body);
    }
  }
}

TEST_F(SglangEngineTest, RetractIsSentWhereItIsTheMode) {
  Connect({.url = server_.url() + "/", .admin_key = {}, .pause_mode = sync::PauseMode::kRetract});
  EXPECT_EQ(Do(Operation::kPause, Reply(200, R"({"status":"ok"})")).kind, AnswerKind::kOk);
  EXPECT_EQ(server_.last().body, R"({"mode":"retract"})");
  EXPECT_EQ(server_.last().path, "/pause_generation");
}

// RC-RPC-01: replies that are no success on any route that says "success".
TEST_F(SglangEngineTest, AReplyWithoutExplicitSuccessIsNoAnswer) {  // S42, S44
  const std::vector<RawReply> malformed = {
      Reply(200, ""),
      Reply(200, "null"),
      Reply(200, "true"),
      Reply(200, "{}"),
      Reply(200, R"({"message":"Success"})"),
      Reply(200, R"({"success":null})"),
      Reply(200, R"({"success":1})"),
      Reply(200, R"({"success":"true"})"),
      Reply(200, R"({"success":[true]})"),
      Reply(200, R"({"Success":true})"),
      Reply(200, R"({"result":{"success":true}})"),
      Reply(200, R"([{"success":true}])"),
      Reply(200, R"([[{"success":true}]])"),
      Reply(200, R"({"success":true)"),
      Reply(200, R"({"success":true}})"),
      Reply(200, R"({"success":true} {"success":true})"),
      Reply(200, R"({success:true})"),
      Reply(200, R"({"success":tru)"),
      Reply(200, "<html>OK</html>"),
      Reply(200, "{\"success\":true,\"message\":\"\xff\"}"),
      Reply(201, R"({"success":true})"),
      Reply(204, ""),
      Reply(302, R"({"success":true})"),
      Reply(500, R"({"success":true})"),
      Reply(500, "Internal Server Error"),
      Reply(503, R"({"success":false})"),
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"success\":true}"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"success\":true}"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"success\":true}\r\n"},
      {""},
  };
  for (const RouteCase& route : Routes()) {
    if (!HasSuccessField(route.operation)) {
      continue;
    }
    for (const RawReply& reply : malformed) {
      const Answer answer = Do(route.operation, reply);
      EXPECT_EQ(answer.kind, AnswerKind::kNone) << route.request << " took " << reply.bytes;
      EXPECT_FALSE(answer.message.empty());
    }
  }
}

// RC-RPC-01: the same for routes whose stock reply has no such field.
TEST_F(SglangEngineTest, WhereNoSuccessIsNamedTheReplyMustStillBeItsRoutes) {
  const std::vector<RawReply> malformed_object = {
      Reply(200, ""),
      Reply(200, "true"),
      Reply(200, "ok"),
      Reply(200, R"("ok")"),
      Reply(200, R"([{"status":"ok"}])"),
      Reply(200, R"({"status":"ok")"),
      Reply(200, R"({"status":"ok"}})"),
      Reply(200, R"({"status":"failed"})"),
      Reply(200, R"({"status":null})"),
      Reply(200, R"({"success":null})"),
      Reply(200, R"({"success":"true"})"),
  };
  const std::vector<RawReply> malformed_anywhere = {
      Reply(201, "{}"),
      Reply(202, "{}"),
      Reply(204, ""),
      Reply(302, "{}"),
      Reply(500, "{}"),
      Reply(502, "null"),
      Reply(503, ""),
      Reply(200, R"({"success":1})"),
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nnull\r\n"},
      {"HTTP/1.1 200"},
      {""},
  };
  for (const RouteCase& route : Routes()) {
    if (HasSuccessField(route.operation)) {
      continue;
    }
    std::vector<RawReply> replies = malformed_anywhere;
    if (route.operation != Operation::kFlush) {
      replies.insert(replies.end(), malformed_object.begin(), malformed_object.end());
    }
    for (const RawReply& reply : replies) {
      EXPECT_EQ(Do(route.operation, reply).kind, AnswerKind::kNone) << route.request << " took " << reply.bytes;
    }
  }
}

TEST_F(SglangEngineTest, PauseWithANullBodyIsNoSuccess) {
  EXPECT_EQ(Do(Operation::kPause, Reply(200, "null")).kind, AnswerKind::kNone);
}

// RC-RPC-03, C8: a complete 4xx, or success:false, is a refusal, with the engine's own words.
TEST_F(SglangEngineTest, AnExplicitRefusalKeepsTheEnginesOwnMessage) {
  for (const RouteCase& route : Routes()) {
    for (const RawReply& reply : {
             Reply(200, R"({"success":false,"message":"X marks the spot"})"),
             Reply(400, R"({"success":false,"message":"X marks the spot"})"),
             Reply(400, R"({"object":"error","message":"X marks the spot","code":400})"),
             Reply(400, R"({"error":{"message":"X marks the spot"}})"),
             Reply(400, "X marks the spot"),
             Reply(405, R"({"detail":"X marks the spot"})"),
             Reply(409, R"({"error":"X marks the spot"})"),
         }) {
      const Answer answer = Do(route.operation, reply);
      EXPECT_EQ(answer.kind, AnswerKind::kRefused) << route.request << " took " << reply.bytes;
      EXPECT_EQ(answer.message, route.operation == Operation::kUpdate
                                    ? "X marks the spot; it was to load 2 tensors, w first"
                                    : "X marks the spot");
    }
  }
}

TEST_F(SglangEngineTest, OnlyAMissingBeginSaysThatThereAreNoSessions) {
  for (const RouteCase& route : Routes()) {
    EXPECT_EQ(Do(route.operation, Reply(404, R"({"detail":"Not Found"})")).kind,
              route.operation == Operation::kBegin ? AnswerKind::kNotFound : AnswerKind::kRefused)
        << route.request;
  }
}

TEST_F(SglangEngineTest, AWrongKeyIsARefusalThatSaysSo) {
  const Answer answer = Do(Operation::kBegin, Reply(401, R"({"error":"Unauthorized"})"));
  EXPECT_EQ(answer.kind, AnswerKind::kRefused);
  EXPECT_THAT(answer.message, HasSubstr("Unauthorized"));
  EXPECT_THAT(answer.message, HasSubstr("admin key"));
  EXPECT_THAT(server_.seen(), SizeIs(1));  // one key: there is no other to try
  EXPECT_EQ(Do(Operation::kEnd, Reply(403, R"({"error":"Forbidden"})")).kind, AnswerKind::kRefused);
}

// ---- two keys (docs/spec/sglang-wire.md §1.0)

class TwoKeysTest : public SglangEngineTest {
 protected:
  void SetUp() override { Connect({.url = server_.url(), .admin_key = "admin", .api_key = "users", .pause_mode = {}}); }
  const RawReply unauthorized_ = Reply(401, R"({"error":"Unauthorized"})");
};

TEST_F(TwoKeysTest, EachRouteGetsItsOwn) {
  server_.Answer("*", Reply(200, R"({"success":true,"status":"ok","output_ids":[1]})"));
  for (const RouteCase& route : Routes()) {
    static_cast<void>(Do(route.operation));
    EXPECT_THAT(server_.last().head, HasSubstr("Bearer admin")) << route.request;
  }
  ASSERT_TRUE(engine_->Generate({.text = "x", .token_ids = {}}, kDeadline).has_value());
  EXPECT_THAT(server_.last().head, HasSubstr("Bearer users"));
  ASSERT_FALSE(engine_->Checksums(kDeadline).has_value());
  EXPECT_THAT(server_.last().head, HasSubstr("Bearer admin"));
  ASSERT_TRUE(Describe(R"({"version":"0.5.23","tp_size":1})").has_value());
  for (const SeenRequest& seen : server_.seen()) {
    const bool information = seen.path == "/server_info" || seen.path == "/model_info";
    EXPECT_TRUE(!information || seen.head.find("Bearer users") != std::string::npos) << seen.path;
  }
}

// RC-RPC-01: with both keys set, a server without sessions answers `begin` with 401, since a path without a route is
// guarded by the other key.
TEST_F(TwoKeysTest, AMissingBeginIsFoundBehindThe401) {
  server_.Answer("/begin_weight_update", "Bearer admin", unauthorized_);
  server_.Answer("/begin_weight_update", "Bearer users", Reply(404, R"({"detail":"Not Found"})"));
  EXPECT_EQ(Do(Operation::kBegin).kind, AnswerKind::kNotFound);
  EXPECT_THAT(server_.seen(), SizeIs(2));
}

TEST_F(TwoKeysTest, A401ThatBothKeysGetIsARefusal) {
  server_.Answer("*", unauthorized_);
  EXPECT_EQ(Do(Operation::kBegin).kind, AnswerKind::kRefused);
  EXPECT_THAT(server_.seen(), SizeIs(2));
  EXPECT_EQ(Do(Operation::kEnd).kind, AnswerKind::kRefused);
  EXPECT_THAT(server_.seen(), SizeIs(3));  // whose route is there once `begin` was
}

// ---- servers that cannot be refitted, found before they are touched

TEST_F(SglangEngineTest, AServerWithoutTheRoutesIsRefused) {
  server_.Answer("*", Reply(404, R"({"detail":"Not Found"})"));
  Status status = engine_->Describe(kDeadline).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr("/get_server_info answered 404: Not Found"));
  ASSERT_TRUE(Describe(R"({"version":"0.5.23","tp_size":1})").has_value());
  for (const char* route : {"/update_weight_version", "/update_weights_from_tensor"}) {
    server_.Answer(route, Reply(404, R"({"detail":"Not Found"})"));
    status = engine_->Describe(kDeadline).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(StrCat("SGLang 0.5.23 has no route ", route)));
  }
}

TEST_F(SglangEngineTest, AServerThatWantsAKeyAndGetsNoneIsRefused) {
  Connect({.url = server_.url(), .admin_key = {}, .pause_mode = {}});
  server_.Answer("*", Reply(401, R"({"error":"Unauthorized"})"));
  Status status = engine_->Describe(kDeadline).status();  // an API key
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.ToString(), HasSubstr("/server_info answered 401: Unauthorized"));
  EXPECT_THAT(status.remedy(), HasSubstr("--api-key-file"));
  ASSERT_TRUE(Describe(R"({"version":"0.5.23","tp_size":1})").has_value());
  AnswerRoutes(Reply(401, R"({"error":"Unauthorized"})"));  // an admin key only: the information is open
  status = engine_->Describe(kDeadline).status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.remedy(), HasSubstr("--admin-api-key-file"));
}

TEST_F(SglangEngineTest, TheDeviceOfAServerSaysHowItHashes) {  // settled D8
  const auto kind = [this](const std::string& more) {
    return Describe(R"({"version":"0.5.23","tp_size":1)" + more + "}").value().hash_kind;
  };
  EXPECT_EQ(kind(R"(,"device":"cuda")"), ParameterHashKind::kGpu);
  EXPECT_EQ(kind(R"(,"device":"cuda:1")"), ParameterHashKind::kGpu);
  EXPECT_EQ(kind(R"(,"device":"cpu")"), ParameterHashKind::kSha256Prefix);
  EXPECT_EQ(kind(R"(,"device":null)"), ParameterHashKind::kSha256Prefix);
  EXPECT_EQ(kind(""), ParameterHashKind::kSha256Prefix);
}

// Asking must change nothing: each body lacks what its route requires.
TEST_F(SglangEngineTest, TheRoutesAreAskedWithBodiesThatAreRefused) {
  ASSERT_TRUE(Describe(R"({"version":"0.5.17","tp_size":1})").has_value());
  for (const SeenRequest& seen : server_.seen()) {
    EXPECT_TRUE(seen.method == "GET" || seen.body == "{}") << seen.path << ' ' << seen.body;
  }
}

// RC-CFG-02, -03, -04, -05, -08, settled D5. RC-KILL-04, RC-ROLE-03: no engine is on several nodes.
TEST_F(SglangEngineTest, AServerThatCannotBeRefittedIsNamedWithItsSetting) {
  const auto refusal = [this](const std::string& more) {
    const auto described = Describe(R"({"version":"0.5.23","tp_size":2)" + more + "}");
    EXPECT_TRUE(described.has_value()) << described.status().ToString();
    const Status status = CheckServerFits(*described, 2, Owner::kSomebody);
    EXPECT_TRUE(status.ok() || !status.remedy().empty());
    return status.message();
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(R"(,"dp_size":1,"attn_dp_size":1,"pp_size":1,"ep_size":1,"nnodes":1,"quantization":null)"), "");
  EXPECT_THAT(refusal(R"(,"dp_size":2)"), HasSubstr("dp_size 2"));
  EXPECT_THAT(refusal(R"(,"dp_size":1,"attn_dp_size":2)"), HasSubstr("dp_size 2"));
  EXPECT_THAT(refusal(R"(,"pp_size":2)"), HasSubstr("pp_size 2"));
  EXPECT_THAT(refusal(R"(,"ep_size":2)"), HasSubstr("ep_size 2"));
  EXPECT_THAT(refusal(R"(,"nnodes":2)"), HasSubstr("nnodes 2"));
  EXPECT_THAT(refusal(R"(,"quantization":"fp8")"), HasSubstr("quantization fp8"));
  EXPECT_THAT(refusal(R"(,"tokenizer_worker_num":2)"), HasSubstr("tokenizer_worker_num 2"));
  EXPECT_THAT(refusal(R"(,"speculative_algorithm":"EAGLE")"), HasSubstr("speculative_algorithm EAGLE"));
  EXPECT_THAT(refusal(R"(,"hicache_storage_backend":"file")"), HasSubstr("hicache_storage_backend file"));
  EXPECT_THAT(refusal(R"(,"enable_memory_saver":true)"), HasSubstr("enable_memory_saver"));
  const auto described = Describe(R"({"version":"0.5.23","tp_size":2,"enable_memory_saver":true})");
  EXPECT_TRUE(CheckServerFits(*described, 2, Owner::kAgent).ok());  // who knows what it released
  EXPECT_THAT(CheckServerFits(*described, 1, Owner::kAgent).message(), HasSubstr("tp_size 2"));
}

// RC-RPC-04, RC-RPC-06.
TEST_F(SglangEngineTest, SilenceDripAndEchoAreNoAnswer) {  // S43
  for (const RouteCase& route : Routes()) {
    const Instant before = exec::Now();
    EXPECT_EQ(Do(route.operation, {"", RawReply::Then::kHang}, milliseconds(60)).kind, AnswerKind::kNone);
    EXPECT_EQ(Do(route.operation, {"HTTP/1.1 200 OK\r\n\r\n ", RawReply::Then::kDrip}, milliseconds(60)).kind,
              AnswerKind::kNone);
    EXPECT_LT(exec::Now() - before, seconds(2)) << route.request;
    EXPECT_EQ(Do(route.operation, Reply(400, std::string(2 * kMiB, 'x'))).kind, AnswerKind::kNone);
  }
  EXPECT_EQ(Do(Operation::kPause, Reply(200, "{}"), Duration::zero()).kind, AnswerKind::kNone);
}

TEST_F(SglangEngineTest, TheEnginesWordsAreOneShortLineOfUtf8) {
  const Answer answer =
      Do(Operation::kEnd, Reply(400, "bad\r\nthings\n" + std::string(200, 'x') + std::string(500, '\xc3')));
  EXPECT_EQ(answer.message.substr(0, 12), "bad  things ");
  EXPECT_LE(answer.message.size(), 300U);
  const std::string umlauts = [] {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += "\xc3\xa4";
    }
    return text;
  }();
  const Answer accented = Do(Operation::kEnd, Reply(400, Json({{"message", "x" + umlauts}}).dump()));
  EXPECT_LE(accented.message.size(), 300U);
  EXPECT_TRUE(accented.message.ends_with("\xc3\xa4..."));
}

std::vector<std::string> Payloads(const SeenRequest& seen) {
  return Json::parse(seen.body)["serialized_named_tensors"].get<std::vector<std::string>>();
}

// RC-PAY-03: distinct contents per rank, each at its own rank's place.
TEST_F(SglangEngineTest, PayloadIIsTheOneOfRankI) {
  const UpdateCall call = ThreeRanks();
  server_.Answer("*", Reply(200, R"({"success":true})"));
  ASSERT_EQ(engine_->Update(call, kDeadline).kind, AnswerKind::kOk);
  EXPECT_THAT(Payloads(server_.last()),
              ElementsAre(Base64(PicklePayload(call.ranks[0])), Base64(PicklePayload(call.ranks[1])),
                          Base64(PicklePayload(call.ranks[2]))));
}

// RC-PAY-04, RC-VER-01.
TEST_F(SglangEngineTest, AnUpdateNamesItsFormatAndNeverFlushes) {
  UpdateCall call = ThreeRanks();
  server_.Answer("*", Reply(200, R"({"success":true})"));
  ASSERT_EQ(engine_->Update(call, kDeadline).kind, AnswerKind::kOk);
  Json body = Json::parse(server_.last().body);
  EXPECT_EQ(body["load_format"], "flattened_bucket");
  EXPECT_EQ(body["flush_cache"], false);
  EXPECT_EQ(body["selector"], "all");
  EXPECT_FALSE(body.contains("weight_version"));
  call.label = WeightVersion(42);
  ASSERT_EQ(engine_->Update(call, kDeadline).kind, AnswerKind::kOk);
  body = Json::parse(server_.last().body);
  EXPECT_EQ(body["weight_version"], "42");
}

TEST_F(SglangEngineTest, RanksOfOneLoadGetEqualTexts) {
  UpdateCall call = ThreeRanks();
  call.ranks[1] = call.ranks[0];
  server_.Answer("*", Reply(200, R"({"success":true})"));
  ASSERT_EQ(engine_->Update(call, kDeadline).kind, AnswerKind::kOk);
  const auto payloads = Payloads(server_.last());
  ASSERT_THAT(payloads, SizeIs(3));
  EXPECT_EQ(payloads[0], payloads[1]);
  EXPECT_NE(payloads[1], payloads[2]);
}

TEST_F(SglangEngineTest, APayloadThatWouldKillTheEngineIsNotSent) {
  UpdateCall beyond = ThreeRanks();
  beyond.ranks[1].tensors[1].offset = 502;
  UpdateCall crooked = ThreeRanks();
  crooked.ranks[2].tensors[1].offset = 13;
  UpdateCall overflowing = ThreeRanks();
  overflowing.ranks[0].tensors[0].offset = ~ByteCount{0} - 1;
  for (const UpdateCall& call : {beyond, crooked, overflowing, UpdateCall{}}) {
    const Answer answer = engine_->Update(call, kDeadline);
    EXPECT_EQ(answer.kind, AnswerKind::kRefused);
    EXPECT_THAT(answer.message, HasSubstr("not sent"));
  }
  EXPECT_THAT(server_.seen(), SizeIs(0));
}

TEST_F(SglangEngineTest, DescribeReadsBothRoutesAndTheirOldNames) {
  const RawReply server =
      Reply(200, R"({"version":"0.5.23","tp_size":2,"dp_size":null,"nnodes":1,"quantization":null})");
  const RawReply model = Reply(200, R"({"model_path":"/m","weight_version":"default"})");
  server_.Answer("*", Reply(404, R"({"detail":"Not Found"})"));
  server_.Answer("/get_server_info", server);
  server_.Answer("/model_info", model);
  AnswerRoutes(Reply(400, R"({"object":"error","message":"a field is missing"})"));
  const auto described = engine_->Describe(kDeadline);
  ASSERT_TRUE(described.has_value()) << described.status().ToString();
  EXPECT_EQ(described->version, "0.5.23");
  EXPECT_EQ(described->family, SessionFamily::kC);
  EXPECT_EQ(described->tp_size, 2U);
  EXPECT_EQ(described->dp_size, 1U);
  EXPECT_EQ(described->model_path, "/m");
  EXPECT_EQ(described->quantization, "");
  EXPECT_EQ(described->weight_version, "default");
}

TEST_F(SglangEngineTest, DescribeRefusesWhatItCannotBelieve) {
  server_.Answer("/model_info", Reply(200, "{}"));
  AnswerRoutes(Reply(400, ""));
  for (const char* body : {"[]", "{}", R"({"version":"0.5.23"})", R"({"version":"0.5.23","tp_size":"two"})",
                           R"({"version":"0.5.23","tp_size":-1})", R"({"version":"0.5.23","tp_size":0})",
                           R"({"version":7,"tp_size":1})", R"({"version":"0.5.8","tp_size":1})"}) {
    server_.Answer("/server_info", Reply(200, body));
    EXPECT_FALSE(engine_->Describe(kDeadline).has_value()) << body;
  }
}

TEST(ServerVersion, TellsTheFamily) {
  for (const auto& [version, family] : std::vector<std::pair<const char*, SessionFamily>>{
           {"0.5.9", SessionFamily::kA},
           {"0.5.12.post1", SessionFamily::kA},
           {"0.5.17", SessionFamily::kA},
           {"0.5.20", SessionFamily::kA},
           {"0.5.17.dev30+g3003d70f6", SessionFamily::kB},
           {"0.5.23+gabcdef0", SessionFamily::kB},
           {"0.5.21", SessionFamily::kC},
           {"0.5.23", SessionFamily::kC},
           {"0.6.0rc1", SessionFamily::kC},
           {"1.0.0", SessionFamily::kC},
       }) {
    const auto found = FamilyOfVersion(version);
    ASSERT_TRUE(found.has_value()) << version;
    EXPECT_EQ(*found, family) << version;
  }
  EXPECT_THAT(FamilyOfVersion("0.5.8").status().message(), HasSubstr("0.5.8"));
  for (const char* version : {"", "0", "0.5", "0.5.", "unknown", "0.5.x", "v0.5.17", "99999999999.1.1", "0.4.99"}) {
    EXPECT_FALSE(FamilyOfVersion(version).has_value()) << version;
  }
}

TEST_F(SglangEngineTest, ChecksumsReadBothFormsOfTheParallelismInfo) {
  server_.Answer("*", Reply(200, R"({"success":true,"message":"","ranks":[
    {"checksums":{"a":"0123456789abcdef"},"parallelism_info":{"tp_rank":0}},
    {"checksums":{"a":"fedcba9876543210"},"parallelism_info":[{"role":"target","tp_rank":1}]}]})"));
  const auto hashes = engine_->Checksums(kDeadline);
  ASSERT_TRUE(hashes.has_value()) << hashes.status().ToString();
  ASSERT_THAT(*hashes, SizeIs(2));
  EXPECT_EQ((*hashes)[1].rank, TpRank(1));
  EXPECT_EQ((*hashes)[1].hashes.at("a"), "fedcba9876543210");
  EXPECT_EQ(server_.last().body, R"({"action":"checksum"})");
}

TEST_F(SglangEngineTest, ChecksumsThatAreNotWholeAreAnError) {
  for (const char* body : {
           R"({})",
           R"({"success":true})",
           R"({"success":true,"ranks":[]})",
           R"({"success":true,"ranks":{}})",
           R"({"success":false,"ranks":[{"checksums":{},"parallelism_info":{"tp_rank":0}}]})",
           R"({"success":true,"ranks":[7]})",
           R"({"success":true,"ranks":[{"checksums":{"a":"0123456789abcdef"}}]})",
           R"({"success":true,"ranks":[{"checksums":{"a":"0123456789abcdef"},"parallelism_info":[]}]})",
           R"({"success":true,"ranks":[{"checksums":{"a":"0123456789abcdef"},"parallelism_info":{"tp_rank":"0"}}]})",
           R"({"success":true,"ranks":[{"checksums":{"a":"0123"},"parallelism_info":{"tp_rank":0}}]})",
           R"({"success":true,"ranks":[{"checksums":{"a":"xyz3456789abcdef"},"parallelism_info":{"tp_rank":0}}]})",
           R"({"success":true,"ranks":[{"checksums":{"a":5},"parallelism_info":{"tp_rank":0}}]})",
       }) {
    server_.Answer("*", Reply(200, body));
    EXPECT_FALSE(engine_->Checksums(kDeadline).has_value()) << body;
  }
}

TEST_F(SglangEngineTest, GenerateSendsTextOrTokensAndReadsWhatCameBack) {
  server_.Answer("*", Reply(200, R"({"text":"Paris","output_ids":[3,4],"meta_info":{"weight_version":"7"}})"));
  const auto generation = engine_->Generate({.text = "The capital", .token_ids = {}, .max_new_tokens = 5}, kDeadline);
  ASSERT_TRUE(generation.has_value());
  EXPECT_EQ(generation->text, "Paris");
  EXPECT_THAT(generation->token_ids, ElementsAre(3, 4));
  EXPECT_EQ(generation->weight_version, "7");
  Json body = Json::parse(server_.last().body);
  EXPECT_EQ(body["text"], "The capital");
  EXPECT_EQ(body["sampling_params"]["max_new_tokens"], 5);
  ASSERT_TRUE(
      engine_->Generate({.text = {}, .token_ids = {1, 2}, .temperature = 0.5, .seed = 9}, kDeadline).has_value());
  body = Json::parse(server_.last().body);
  EXPECT_EQ(body["input_ids"], Json({1, 2}));
  EXPECT_FALSE(body.contains("text"));
  EXPECT_EQ(body["sampling_params"]["sampling_seed"], 9);
}

TEST_F(SglangEngineTest, GenerateWithAWrongShapeIsAnError) {
  for (const char* body : {"[]", R"({"output_ids":["a"]})", R"({"output_ids":7})", R"({"output_ids":[1e40]})",
                           R"({"output_ids":[99999999999]})"}) {
    server_.Answer("*", Reply(200, body));
    EXPECT_FALSE(engine_->Generate({.text = "x", .token_ids = {}}, kDeadline).has_value()) << body;
  }
}

TEST_F(SglangEngineTest, TheProbeWantsAPlain200) {
  server_.Answer("/health_generate", Reply(200, ""));
  EXPECT_TRUE(engine_->Probe(kDeadline).ok());
  server_.Answer("/health_generate", Reply(503, ""));
  EXPECT_EQ(engine_->Probe(kDeadline).code(), StatusCode::kUnavailable);
}

TEST_F(SglangEngineTest, RequestsInFlightAreThoseOfEveryScheduler) {
  const auto ask = [this](const char* body) {
    server_.Answer("*", Reply(200, body));
    return engine_->RequestsInFlight(kDeadline);
  };
  const auto busy = ask(R"({"loads":[{"num_running_reqs":2,"num_waiting_reqs":1},
                                     {"num_running_reqs":0,"num_waiting_reqs":4}]})");
  ASSERT_TRUE(busy.has_value()) << busy.status().ToString();
  EXPECT_EQ(*busy, 7U);
  for (const char* body : {"{}", R"({"loads":[]})", R"({"loads":[{}]})", R"({"loads":[7]})",
                           R"({"loads":[{"num_running_reqs":"2","num_waiting_reqs":1}]})"}) {
    EXPECT_FALSE(ask(body).has_value()) << body;
  }
  server_.Answer("*", Reply(404, "{}"));
  EXPECT_FALSE(engine_->RequestsInFlight(kDeadline).has_value());
}

TEST_F(SglangEngineTest, AnAnswerSaysFromWhichWeightsItsTokensCome) {
  server_.Answer("*", Reply(200, R"({"output_ids":[5,6],"meta_info":{"weight_version":"2","weight_versions":[
      {"version":"1","start":0,"end":1},{"version":"2","start":1,"end":2}]}})"));
  const auto said = engine_->Generate({.text = "x", .token_ids = {}}, kDeadline);
  ASSERT_TRUE(said.has_value()) << said.status().ToString();
  ASSERT_EQ(said->versions.size(), 2U);
  EXPECT_EQ(said->versions[1].version, "2");
  EXPECT_EQ(said->versions[1].begin, 1U);
  EXPECT_EQ(said->versions[1].end, 2U);
  EXPECT_EQ(said->weight_version, "2");
}

TEST(ConnectSglang, AnAddressWithoutSchemeIsRefused) {
  for (const char* url : {"", "127.0.0.1:30000", "ftp://host"}) {
    EXPECT_FALSE(ConnectSglang({.url = url, .admin_key = {}, .pause_mode = {}}).has_value());
  }
}

}  // namespace
}  // namespace refit::engine::sglang
