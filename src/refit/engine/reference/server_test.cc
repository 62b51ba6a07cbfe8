// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The HTTP contract, end to end in one process. RC-TEST-02: the double enforces its engine's contract.

#include "refit/engine/reference/server.h"

#include <gtest/gtest.h>

#include "refit/engine/reference/server_test_rig.h"

namespace refit::engine::reference {
namespace {

using nlohmann::json;
using sync::SessionFamily;

json Parsed(const Result<http::Response>& response) {
  EXPECT_TRUE(response.has_value()) << response.status().message();
  return response.has_value() ? json::parse(response->body, nullptr, false) : json();
}

TEST(ServerTest, SaysWhoItIs) {
  ServerRig rig({.family = SessionFamily::kB});
  const json info = Parsed(rig.Get("/server_info"));
  EXPECT_EQ(info["version"], "0.5.17.dev30+g3003d70f6");
  EXPECT_EQ(info["tp_size"], 2);
  EXPECT_EQ(info["dp_size"], 1);
  EXPECT_EQ(Parsed(rig.Get("/get_server_info")), info);
  const json model = Parsed(rig.Get("/model_info"));
  EXPECT_EQ(model["weight_version"], "default");
  EXPECT_EQ(model["architectures"][0], "Qwen3ForCausalLM");
  EXPECT_EQ(Parsed(rig.Get("/parallelism_config?rank=1"))["tp_rank"], 1);
}

TEST(ServerTest, UnknownRoutesAndVerbsAreAnsweredAsTheServerDoes) {
  ServerRig rig({});
  EXPECT_EQ(rig.Get("/no_such_route")->status, 404);
  EXPECT_EQ(Parsed(rig.Get("/no_such_route")), (json{{"detail", "Not Found"}}));
  EXPECT_EQ(rig.Get("/update_weights_from_tensor")->status, 405);
  // Family A has no sessions, and /ready came later.
  EXPECT_EQ(rig.StatusOf("/begin_weight_update", json::object()), 404);
  EXPECT_EQ(rig.StatusOf("/end_weight_update", json::object()), 404);
  EXPECT_EQ(rig.Get("/ready")->status, 404);
}

TEST(ServerTest, KeysOpenWhatTheyShould) {
  ServerRig rig({.keys = {.api_key = "user", .admin_key = "admin"}});
  EXPECT_EQ(rig.Get("/health")->status, 200);
  EXPECT_EQ(rig.Get("/model_info")->status, 401);
  EXPECT_EQ(rig.Get("/model_info", "user")->status, 200);
  EXPECT_EQ(rig.Get("/flush_cache", "user")->status, 401);
  EXPECT_EQ(rig.Get("/flush_cache", "admin")->status, 200);
  EXPECT_EQ(rig.Get("/no_such_route", "admin")->status, 401);  // counts as NORMAL (§1.0)
  EXPECT_EQ(rig.Get("/no_such_route", "user")->status, 404);
}

TEST(AuthorizedTest, FollowsTheTable) {
  const Keys none;
  const Keys api{.api_key = "u", .admin_key = ""};
  const Keys admin{.api_key = "", .admin_key = "a"};
  EXPECT_TRUE(Authorized(none, AuthLevel::kAdminOptional, ""));
  EXPECT_TRUE(Authorized(api, AuthLevel::kAdminOptional, "Bearer u"));
  EXPECT_FALSE(Authorized(api, AuthLevel::kNormal, ""));
  EXPECT_TRUE(Authorized(admin, AuthLevel::kNormal, ""));
  EXPECT_FALSE(Authorized(admin, AuthLevel::kAdminOptional, "Bearer b"));
  EXPECT_FALSE(Authorized(admin, AuthLevel::kAdminOptional, "a"));
  EXPECT_TRUE(Authorized(admin, AuthLevel::kAdminOptional, "Bearer a"));
}

// RC-PAY-09: every rank takes one from the count, and what is installed is what another engine loads from the files.
TEST(ServerTest, InstallsASharedMemoryLoadOnEveryRankAndGivesTheCountBack) {
  ServerRig rig({});
  const auto source = checkpoint::Checkpoint::Open(rig.WriteCheckpoint("next", 2));
  ASSERT_TRUE(source.has_value());
  const LoadObject load = MakeLoadOf(**source);
  load.slot().AddReaders(2);
  json body = rig.UpdateBody(sglang::PicklePayload(load.payload));
  body["weight_version"] = "7";
  const json before = Parsed(rig.Post("/weights_checker", {{"action", "checksum"}}));
  const auto answer = rig.Post("/update_weights_from_tensor", body);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(Parsed(answer)["message"], "Success Weight version updated to 7.");
  EXPECT_EQ(load.slot().count(), 1);
  EXPECT_EQ(Parsed(rig.Get("/model_info"))["weight_version"], "7");

  const json after = Parsed(rig.Post("/weights_checker", {{"action", "checksum"}}));
  ASSERT_EQ(after["ranks"].size(), 2U);
  EXPECT_NE(after["per_engine_checksum"], before["per_engine_checksum"]);
  const weights::ModelConfig config = rig.engine().config();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto fresh = RankModel::Make(config, {TpRank(rank), 2});
    ASSERT_TRUE(fresh->LoadFromCheckpoint(**source).ok());
    EXPECT_EQ(after["ranks"][rank]["checksums"], json(fresh->Checksums()));
    EXPECT_EQ(after["ranks"][rank]["parallelism_info"]["tp_rank"], rank);
  }
}

// A sender that replaces a slot under the same name is read from the new object.
TEST(ServerTest, AnObjectThatTookTheNameOfAnotherIsTheOneThatIsRead) {
  ServerRig rig({.tp_size = 1});
  std::string last;
  for (int round = 0; round < 2; ++round) {
    const std::vector<std::byte> bytes(256, std::byte(round + 1));
    const LoadObject load = MakeLoad({{{"model.norm.weight", weights::DType::kBfloat16, {128}}, bytes}}, "replaced");
    load.slot().AddReaders(1);
    const std::string pickle = sglang::PicklePayload(load.payload);
    ASSERT_EQ(rig.StatusOf("/update_weights_from_tensor", rig.UpdateBody(pickle)), 200);
    EXPECT_EQ(load.slot().count(), 1);
    const json sums = Parsed(rig.Post("/weights_checker", json::object()))["ranks"][0]["checksums"];
    EXPECT_NE(sums["model.norm.weight"], last);
    last = sums["model.norm.weight"];
  }
}

// RC-TEST-02, RC-PAY-03: a rank decodes the element of its own number, and nothing else.
TEST(ServerTest, EachRankOpensItsOwnPayload) {
  ServerRig rig({});
  const LoadObject loads[] = {MakeLoad({}), MakeLoad({})};
  json body = rig.UpdateBody("");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    loads[rank].slot().AddReaders(1);
    body["serialized_named_tensors"][rank] = sglang::Base64(sglang::PicklePayload(loads[rank].payload));
  }
  EXPECT_EQ(rig.StatusOf("/update_weights_from_tensor", body), 200);
  EXPECT_EQ(loads[0].slot().count(), 1);
  EXPECT_EQ(loads[1].slot().count(), 1);
}

// Settled D2: a count that nobody raised reaches 0, and the object is gone.
TEST(ServerTest, AnObjectWhoseCountReachesZeroIsUnlinked) {
  ServerRig rig({.tp_size = 1});
  const LoadObject load = MakeLoad({});
  const std::string pickle = sglang::PicklePayload(load.payload);
  EXPECT_EQ(rig.StatusOf("/update_weights_from_tensor", rig.UpdateBody(pickle)), 200);
  EXPECT_EQ(load.slot().count(), 0);
  EXPECT_FALSE(device::SharedMemory::Open(load.memory->name(), 64).has_value());
}

TEST(ServerTest, FamilyCRefusesWrongSessionCallsAndGoesOn) {
  ServerRig rig({.family = SessionFamily::kC, .tp_size = 1});
  const json update = rig.UpdateBody("\x80\x04N.");
  EXPECT_EQ(rig.StatusOf("/update_weights_from_tensor", update), 400);
  EXPECT_EQ(rig.StatusOf("/end_weight_update", json::object()), 400);
  EXPECT_EQ(rig.StatusOf("/begin_weight_update", {{"selector", "bogus"}}), 400);
  EXPECT_EQ(rig.StatusOf("/begin_weight_update", {{"selector", "all"}}), 200);
  EXPECT_EQ(rig.StatusOf("/begin_weight_update", json::object()), 400);
  EXPECT_EQ(rig.StatusOf("/end_weight_update", json::object()), 200);
  EXPECT_FALSE(rig.engine().dead());
}

class DeathTest : public testing::Test {
 protected:
  // The call gets no answer, later ones neither, and after the hang the process would end.
  static void ExpectDeath(ServerRig& rig, const std::string& path, const json& body) {
    EXPECT_FALSE(rig.Post(path, body, "", kShort).has_value());
    EXPECT_FALSE(rig.Get("/model_info", "", kShort).has_value());
    EXPECT_TRUE(exec::WaitUntil([&] { return rig.ended(); }, exec::Now() + kAmple));
  }
  static void ExpectDeathOfUpdate(const RankPayload& payload) {
    ServerRig rig({});
    ExpectDeath(rig, "/update_weights_from_tensor", rig.UpdateBody(sglang::PicklePayload(payload)));
  }
};

TEST_F(DeathTest, FamilyBDiesOfAnUpdateWithoutASession) {
  ServerRig rig({.family = SessionFamily::kB});
  ExpectDeath(rig, "/update_weights_from_tensor", rig.UpdateBody("\x80\x04N."));
}

TEST_F(DeathTest, AListShorterThanTheRanksKills) {
  ServerRig rig({});
  json body = rig.UpdateBody("\x80\x04].", 1);
  body.erase("load_format");
  ExpectDeath(rig, "/update_weights_from_tensor", body);
}

TEST_F(DeathTest, GarbageForOneRankKills) {
  ServerRig rig({});
  const LoadObject load = MakeLoad({});
  json body = rig.UpdateBody(sglang::PicklePayload(load.payload));
  body["serialized_named_tensors"][1] = sglang::Base64("\x80\x05garbage!");
  ExpectDeath(rig, "/update_weights_from_tensor", body);
}

TEST_F(DeathTest, AWrongShapeKills) {
  const std::vector<std::byte> bytes(254);
  const LoadObject load = MakeLoad({{{"model.norm.weight", weights::DType::kBfloat16, {127}}, bytes}});
  ExpectDeathOfUpdate(load.payload);
}

TEST_F(DeathTest, AMissingObjectKills) { ExpectDeathOfUpdate({HostLoad{"/refit-no-such-object", 64}, {}}); }

TEST_F(DeathTest, AnUnknownLoadFormatKills) {
  ServerRig rig({});
  json body = rig.UpdateBody("\x80\x04].");
  body["load_format"] = "nope";
  ExpectDeath(rig, "/update_weights_from_tensor", body);
}

TEST_F(DeathTest, ResumingWhatWasNotReleasedKills) {
  ServerRig rig({});
  ExpectDeath(rig, "/resume_memory_occupation", {{"tags", {"weights"}}});
}

TEST_F(DeathTest, RequestsInFlightGetNoAnswerEither) {
  ServerRig rig({});
  ASSERT_EQ(rig.StatusOf("/pause_generation", {{"mode", "abort"}}), 200);
  auto held = std::async(std::launch::async, [&] { return rig.Post("/generate", rig.GenerateBody(4), "", kShort); });
  ExpectDeath(rig, "/resume_memory_occupation", json::object());
  EXPECT_FALSE(held.get().has_value());
}

TEST(ServerTest, WhatTheRealServerSwallowsIsSwallowed) {
  ServerRig rig({});
  const std::vector<std::byte> bytes(256);
  const LoadObject load = MakeLoad({{{"model.nonsense.weight", weights::DType::kBfloat16, {128}}, bytes}});
  load.slot().AddReaders(2);
  json body = rig.UpdateBody(sglang::PicklePayload(load.payload), 3);  // and a list longer than TP
  body["bogus"] = 1;
  const json before = Parsed(rig.Post("/weights_checker", json::object()));
  EXPECT_EQ(rig.StatusOf("/update_weights_from_tensor", body), 200);
  EXPECT_EQ(Parsed(rig.Post("/weights_checker", json::object())), before);
  json empty = rig.UpdateBody("\x80\x04].");
  empty.erase("load_format");
  EXPECT_EQ(rig.StatusOf("/update_weights_from_tensor", empty), 200);
}

TEST(ServerTest, BadBodiesAreRefusedWithTheServersShape) {
  ServerRig rig({});
  const std::string path = "/update_weights_from_tensor";
  for (const json& body : {json{{"flush_cache", false}}, json{{"serialized_named_tensors", "abc"}},
                           json{{"serialized_named_tensors", {"!!!not base64!!!"}}}, json::array()}) {
    const auto answer = rig.Post(path, body);
    EXPECT_EQ(answer->status, 400);
    EXPECT_EQ(Parsed(answer)["type"], "Bad Request");
    EXPECT_EQ(Parsed(answer)["code"], 400);
  }
  EXPECT_EQ(rig.Send(path, "garbage", "", kAmple)->status, 400);
  EXPECT_EQ(rig.StatusOf("/pause_generation", {{"mode", "bogus"}}), 400);
  EXPECT_EQ(rig.Get("/flush_cache?timeout=-1")->status, 400);
  EXPECT_FALSE(rig.engine().dead());
}

TEST(ServerTest, GeneratesTheSameTokensTwiceAndSaysFromWhichWeights) {
  ServerRig rig({.family = SessionFamily::kC});
  json body = rig.GenerateBody(6);
  body["return_logprob"] = true;
  const json first = Parsed(rig.Post("/generate", body));
  ASSERT_EQ(first["output_ids"].size(), 6U) << first;
  EXPECT_EQ(Parsed(rig.Post("/generate", body))["output_ids"], first["output_ids"]);
  EXPECT_EQ(first["meta_info"]["weight_version"], "default");
  EXPECT_EQ(first["meta_info"]["weight_versions"], (json{{{"version", "default"}, {"start", 0}, {"end", 6}}}));
  EXPECT_EQ(first["meta_info"]["finish_reason"], (json{{"type", "length"}, {"length", 6}}));
  EXPECT_EQ(first["meta_info"]["output_token_logprobs"][2][1], first["output_ids"][2]);
  EXPECT_LT(first["meta_info"]["output_token_logprobs"][2][0], 0);
  EXPECT_EQ(rig.StatusOf("/generate", {{"input_ids", {999999}}}), 400);
  EXPECT_EQ(rig.StatusOf("/generate", {{"text", "no tokenizer here"}}), 400);
}

TEST(ServerTest, RequestsAreHeldWhilePausedAndASecondAbortKillsThem) {
  ServerRig rig({});
  ASSERT_EQ(rig.StatusOf("/pause_generation", json::object()), 200);
  auto held = rig.GenerateInBackground(2);
  ASSERT_TRUE(exec::WaitUntil([&] { return rig.engine().gate().held_count() == 1; }, exec::Now() + kAmple));
  ASSERT_EQ(rig.StatusOf("/continue_generation", json::object()), 200);
  EXPECT_EQ(held.get()->status, 200);

  ASSERT_EQ(rig.StatusOf("/pause_generation", json::object()), 200);
  held = rig.GenerateInBackground(2);
  ASSERT_TRUE(exec::WaitUntil([&] { return rig.engine().gate().held_count() == 1; }, exec::Now() + kAmple));
  ASSERT_EQ(rig.StatusOf("/pause_generation", json::object()), 200);
  ASSERT_EQ(rig.StatusOf("/continue_generation", json::object()), 200);
  const auto answer = held.get();
  EXPECT_EQ(answer->status, 499);
  EXPECT_EQ(Parsed(answer)["message"], "Request r1 was aborted");
}

TEST(ServerTest, AnAbortPauseEndsWhatRuns) {
  ServerRig rig({});
  auto running = rig.GenerateInBackground(4000);
  rig.WaitForOccupancy([](Occupancy occupancy) { return occupancy.running == 1; });
  EXPECT_EQ(rig.StatusOf("/pause_generation", {{"mode", "abort"}}), 200);
  EXPECT_EQ(Parsed(running.get())["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_EQ(rig.Get("/flush_cache")->status, 200);
}

TEST(ServerTest, ARetractPauseIsFlushableOnFamilyCOnly) {
  for (const SessionFamily family : {SessionFamily::kA, SessionFamily::kC}) {
    ServerRig rig({.family = family});
    auto running = rig.GenerateInBackground(400);
    rig.WaitForOccupancy([](Occupancy occupancy) { return occupancy.running == 1; });
    EXPECT_EQ(rig.Get("/flush_cache")->status, 400);
    EXPECT_EQ(rig.StatusOf("/pause_generation", {{"mode", "retract"}}), 200);
    EXPECT_EQ(rig.Get("/flush_cache")->status, family == SessionFamily::kA ? 400 : 200);
    EXPECT_EQ(rig.StatusOf("/continue_generation", json::object()), 200);
    const json answer = Parsed(running.get());
    EXPECT_EQ(answer["meta_info"]["num_retractions"], 1);
    EXPECT_EQ(answer["output_ids"].size(), 400U);
  }
}

TEST(ServerTest, AnUnpausedUpdateWaitsForTheRequestsInFlight) {
  ServerRig rig({.tp_size = 1});
  auto running = rig.GenerateInBackground(300);
  rig.WaitForOccupancy([](Occupancy occupancy) { return occupancy.running == 1; });
  json body = rig.UpdateBody("\x80\x04].");
  body.erase("load_format");
  body["weight_version"] = "v1";
  EXPECT_EQ(rig.StatusOf("/update_weights_from_tensor", body), 200);
  EXPECT_EQ(running.wait_for(kAmple), std::future_status::ready);
  EXPECT_EQ(Parsed(running.get())["output_ids"].size(), 300U);
}

TEST(ServerTest, HealthIsLateWhilePaused) {
  ServerRig rig({.family = SessionFamily::kC});
  EXPECT_EQ(rig.Get("/health_generate")->status, 200);
  EXPECT_EQ(rig.Get("/ready")->status, 200);
  ASSERT_EQ(rig.StatusOf("/pause_generation", json::object()), 200);
  EXPECT_EQ(rig.Get("/health")->status, 503);
  EXPECT_EQ(rig.Get("/ready")->status, 503);
  EXPECT_EQ(rig.Get("/ping")->status, 200);
}

TEST(ServerTest, TheCheckerResetsAndCompares) {
  ServerRig rig({.family = SessionFamily::kC});
  const auto check = [&](const char* action) { return rig.StatusOf("/weights_checker", {{"action", action}}); };
  EXPECT_EQ(check("compare"), 400);
  EXPECT_EQ(check("snapshot"), 200);
  EXPECT_EQ(check("compare"), 200);
  EXPECT_EQ(check("compare"), 400);  // consumed
  EXPECT_EQ(check("snapshot"), 200);
  EXPECT_EQ(check("reset_tensors"), 200);
  EXPECT_EQ(check("compare"), 400);
  EXPECT_EQ(check("bogus"), 400);
}

TEST(ServerTest, ReleasedWeightsAreLost) {
  ServerRig rig({.memory_saver = EngineOptions::MemorySaver::kOn});
  const json before = Parsed(rig.Post("/weights_checker", json::object()));
  const auto released = rig.Post("/release_memory_occupation", {{"tags", {"weights"}}});
  EXPECT_EQ(released->status, 200);
  EXPECT_EQ(released->body, "null");
  EXPECT_EQ(rig.StatusOf("/resume_memory_occupation", {{"tags", {"weights"}}}), 200);
  EXPECT_NE(Parsed(rig.Post("/weights_checker", json::object())), before);
}

TEST(ServerTest, TheLabelIsOnlyALabel) {
  ServerRig rig({});
  const json answer = Parsed(rig.Post("/update_weight_version", {{"new_version", "9"}, {"abort_all_requests", false}}));
  EXPECT_EQ(answer["new_version"], "9");
  EXPECT_EQ(answer["success"], true);
  EXPECT_EQ(Parsed(rig.Get("/model_info"))["weight_version"], "9");
}

TEST(ServerTest, WeightsByNameAreForLlamaOnly) {
  ServerRig qwen({});
  EXPECT_EQ(qwen.StatusOf("/get_weights_by_name", {{"name", "model.norm.weight"}}), 400);
  ServerRig llama({.tp_size = 1, .shape = "tiny-llama"});
  const json rows = Parsed(llama.Post("/get_weights_by_name", {{"name", "model.norm.weight"}, {"truncate_size", 3}}));
  EXPECT_EQ(rows.size(), 3U) << rows;
  EXPECT_EQ(llama.StatusOf("/get_weights_by_name", {{"name", "no.such"}}), 400);
}

TEST(ServerFaultTest, EachSwitchDoesWhatItSays) {
  ServerRig rig({.faults = {"refuse:label:1", "http500:label:2", "broken-json:label:3", "close:label:4",
                            "echo:label:5:1", "hang:label:6", "slow:label:7:0", "drip:label:8", "hold:label:9:0.01"}});
  const json body = {{"new_version", "1"}, {"abort_all_requests", false}};
  const std::string path = "/update_weight_version";
  EXPECT_EQ(Parsed(rig.Post(path, body))["success"], false);
  EXPECT_EQ(rig.engine().label(), "default");
  EXPECT_EQ(rig.Post(path, body)->status, 500);
  const auto broken = rig.Post(path, body);
  EXPECT_EQ(broken->status, 200);
  EXPECT_TRUE(json::parse(broken->body, nullptr, false).is_discarded());
  EXPECT_EQ(rig.engine().label(), "1");
  EXPECT_FALSE(rig.Post(path, body).has_value());
  const auto echo = rig.Post(path, body);
  EXPECT_EQ(echo->status, 400);
  EXPECT_GT(echo->body.size(), 1'000'000U);
  EXPECT_EQ(rig.Post(path, body, "", kShort).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(rig.Post(path, body)->status, 200);
  EXPECT_EQ(rig.Post(path, body, "", kShort).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(rig.Post(path, body)->status, 200);
  EXPECT_EQ(rig.Post(path, body)->status, 200);
}

TEST(ServerFaultTest, DieIsTheMeasuredDeath) {
  ServerRig rig({.faults = {"die:server_info:2"}});
  EXPECT_EQ(rig.Get("/server_info")->status, 200);
  EXPECT_FALSE(rig.Get("/server_info", "", kShort).has_value());
  EXPECT_TRUE(exec::WaitUntil([&] { return rig.ended(); }, exec::Now() + kAmple));
}

TEST(ReferenceEngineTest, ATpSizeThatDoesNotDivideIsAConfigurationError) {
  test::TempFolder folder;
  ASSERT_TRUE(checkpoint::WriteRandomCheckpoint(*checkpoint::RandomShape("tiny"), 1, folder / "m").ok());
  EngineOptions options;
  options.model_folder = folder / "m";
  options.tp_size = 3;
  EXPECT_FALSE(ReferenceEngine::Make(options).has_value());
  options.model_folder = folder / "nowhere";
  EXPECT_FALSE(ReferenceEngine::Make(options).has_value());
}

}  // namespace
}  // namespace refit::engine::reference
