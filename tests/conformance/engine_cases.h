// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The cases that leave a server alive (docs/spec/sglang-wire.md §1). Included once per program.

#pragma once

#include <cstring>

#include "tests/conformance/engine_suite.h"

namespace refit::conformance {

class EngineConformance : public EngineSuite {
 protected:
  void SetUp() override { Use(GetParam().living()); }
  // A failed case must not make the next ones fail.
  void TearDown() override {
    if (HasFailure() && engine_ != nullptr) {
      static_cast<void>(engine_->Call(Operation::kResume, {}, kPatience));
      if (server_->family == SessionFamily::kC) {
        static_cast<void>(engine_->Call(Operation::kEnd, {}, kPatience));
      }
      Restore();
    }
  }
};

// ---- who it is

TEST_P(EngineConformance, SaysWhoItIs) {
  const auto description = engine_->Describe(kPatience);
  ASSERT_TRUE(description.has_value()) << description.status().ToString();
  EXPECT_EQ(description->family, server_->family) << description->version;
  EXPECT_EQ(description->tp_size, server_->tp_size);
  EXPECT_EQ(description->dp_size, 1U);
  EXPECT_EQ(description->pp_size, 1U);
  EXPECT_EQ(description->node_count, 1U);
  EXPECT_EQ(description->model_path, server_->model);
  EXPECT_EQ(description->quantization, "");
  const json model = BodyOf(Get("/model_info"));
  EXPECT_TRUE(model["weight_version"].is_string());
  EXPECT_TRUE(model["is_generation"].get<bool>());
  EXPECT_EQ(model["architectures"], json::array({"Qwen3ForCausalLM"}));
  EXPECT_EQ(model["model_type"], "qwen3");
}

TEST_P(EngineConformance, AnswersUnknownRoutesAndVerbs) {
  EXPECT_EQ(StatusOf(Get("/no_such_route")), 404);
  EXPECT_EQ(BodyOf(Get("/no_such_route")), (json{{"detail", "Not Found"}}));
  EXPECT_EQ(StatusOf(Get("/update_weights_from_tensor")), 405);
  EXPECT_EQ(StatusOf(Get("/ready")), server_->family == SessionFamily::kC ? 200 : 404);
  EXPECT_EQ(StatusOf(Get("/parallelism_config?rank=0")), server_->family == SessionFamily::kB ? 200 : 404);
}

TEST_P(EngineConformance, WantsTheAdminKeyForControlCallsOnly) {
  if (server_->admin_key.empty()) {
    GTEST_SKIP() << "the server has no key";
  }
  const auto without = [this](const std::string& path, const std::string& body) {
    return http::Send({.url = server_->url + path, .body = body, .bearer = "wrong", .deadline = kPatience});
  };
  for (const char* path :
       {"/pause_generation", "/begin_weight_update", "/update_weights_from_tensor", "/weights_checker"}) {
    const bool exists = has_sessions() || std::string_view(path) != "/begin_weight_update";
    const Response response = without(path, "{}");
    EXPECT_EQ(StatusOf(response), exists ? 401 : 404) << path;
    if (exists) {
      EXPECT_EQ(BodyOf(response), (json{{"error", "Unauthorized"}})) << path;
    }
  }
  EXPECT_EQ(StatusOf(without("/model_info", "")), 200);
  EXPECT_EQ(StatusOf(without("/server_info", "")), 200);
}

// ---- pause, flush, continue

TEST_P(EngineConformance, PausesFlushesAndContinues) {
  for (const char* mode : {"abort", "retract", "in_place"}) {
    const Response paused = Post("/pause_generation", {{"mode", mode}});
    EXPECT_EQ(StatusOf(paused), 200) << mode;
    EXPECT_EQ(BodyOf(paused)["status"], "ok");
    EXPECT_EQ(StatusOf(Post("/pause_generation", {{"mode", mode}})), 200);  // again
    EXPECT_EQ(StatusOf(Get("/flush_cache?timeout=0")), 200) << mode;        // idle
    EXPECT_EQ(StatusOf(Post("/continue_generation", {{"torch_empty_cache", false}})), 200);
  }
  const Response continued = Post("/continue_generation", json::object());  // not paused
  EXPECT_EQ(StatusOf(continued), 200);
  EXPECT_EQ(BodyOf(continued)["status"], "ok");
  EXPECT_EQ(StatusOf(Post("/flush_cache", json::object())), 200);
}

TEST_P(EngineConformance, RefusesABadPause) {
  EXPECT_EQ(StatusOf(Post("/pause_generation", {{"mode", "bogus"}})), 400);
  EXPECT_EQ(StatusOf(Send("/pause_generation", "no json")), 400);
  EXPECT_EQ(StatusOf(Post("/generate", GenerateBody(1))), 200);  // nothing is paused
}

TEST_P(EngineConformance, HoldsARequestWhilePaused) {
  Pause("abort");
  auto held = GenerateInBackground(2);
  EXPECT_EQ(held.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  Continue();
  EXPECT_EQ(StatusOf(held.get()), 200);
}

TEST_P(EngineConformance, AnAbortPauseEndsWhatRuns) {
  auto running = GenerateInBackground(900);
  AwaitBusy();
  Pause("abort");
  const json answer = BodyOf(running.get());
  EXPECT_EQ(answer["meta_info"]["finish_reason"]["type"], "abort") << answer;
  AwaitIdle();
  Continue();
}

// What a drain goes by (RX-MEM-04).
TEST_P(EngineConformance, SaysHowManyRequestsItRuns) {
  const auto engine = engine::sglang::ConnectSglang({.url = server_->url, .admin_key = server_->admin_key});
  ASSERT_TRUE(engine.has_value());
  const auto becomes = [&engine](std::uint64_t count) {
    const auto is_so = [&] {
      const auto now = (*engine)->RequestsInFlight(kPatience);
      return now.has_value() && *now == count;
    };
    return exec::WaitUntil(is_so, exec::Now() + kPatience);
  };
  AwaitIdle();
  EXPECT_TRUE(becomes(0));
  auto running = GenerateInBackground(900);
  EXPECT_TRUE(becomes(1));
  Pause("abort");
  EXPECT_EQ(StatusOf(running.get()), 200);
  EXPECT_TRUE(becomes(0));
  Continue();
}

// Settled D6: why the mode retract is refused at bind on family A.
TEST_P(EngineConformance, ARetractPauseCanBeFlushedExceptOnFamilyA) {
  auto running = GenerateInBackground(200);
  AwaitBusy();
  Pause("retract");
  EXPECT_EQ(StatusOf(Get("/flush_cache?timeout=0")), server_->family == SessionFamily::kA ? 400 : 200);
  Continue();
  const json answer = BodyOf(running.get());
  EXPECT_EQ(answer["meta_info"]["num_retractions"], 1) << answer["meta_info"];
  EXPECT_EQ(answer["output_ids"].size(), 200U);
}

// ---- the session

TEST_P(EngineConformance, FamilyAHasNoSessionRoutes) {
  if (has_sessions()) {
    GTEST_SKIP();
  }
  EXPECT_EQ(StatusOf(Post("/begin_weight_update", {{"selector", "all"}})), 404);
  EXPECT_EQ(StatusOf(Post("/end_weight_update", json::object())), 404);
  EXPECT_EQ(engine_->Call(Operation::kBegin, {}, kPatience).kind, AnswerKind::kNotFound);
}

TEST_P(EngineConformance, ASessionMayBeEmpty) {
  Begin();
  End();
  ExpectOriginal();
}

TEST_P(EngineConformance, FamilyCRefusesWhatIsOutOfOrder) {
  if (server_->family != SessionFamily::kC) {
    GTEST_SKIP();
  }
  Load load({TensorOf("model.norm.weight")});
  const std::string outside =
      "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()";
  const std::string closed = "no weight-update session is open; call begin_weight_update() first";
  const std::string open = "a weight-update session is already open; call end_weight_update() first";
  ExpectRefused(Post("/update_weights_from_tensor", UpdateBody(load)), outside);
  ExpectRefused(Post("/end_weight_update", json::object()), closed);
  EXPECT_EQ(StatusOf(Post("/begin_weight_update", {{"selector", "bogus"}})), 400);
  Begin();
  ExpectRefused(Post("/begin_weight_update", {{"selector", "all"}}), open);
  EXPECT_EQ(StatusOf(Post("/generate", GenerateBody(2))), 200);  // a session does not pause
  End();
  ExpectRefused(Post("/end_weight_update", json::object()), closed);
}

// ---- the update

// RC-PAY-09: 1 + TP before the call; every rank takes one away, and every byte is where it belongs.
TEST_P(EngineConformance, InstallsEveryTensorOnEveryRank) {
  std::vector<Tensor> zeros = AllTensors();
  for (Tensor& tensor : zeros) {
    std::ranges::fill(tensor.bytes, std::byte{0});
  }
  EXPECT_EQ(Install(zeros), "Success");
  EXPECT_FALSE(weights::CompareRankHashes(OriginalChecksums(), Checksums()).empty());
  Restore();
  ExpectOriginal();
}

TEST_P(EngineConformance, LabelsWithTheUpdate) {
  Load load({TensorOf("model.norm.weight")});
  load.slot().AddReaders(static_cast<std::int32_t>(server_->tp_size));
  json body = UpdateBody(load);
  body["weight_version"] = "v1";
  Begin();
  const Response response = Post("/update_weights_from_tensor", body);
  End();
  EXPECT_EQ(StatusOf(response), 200);
  EXPECT_EQ(BodyOf(response)["message"], "Success Weight version updated to v1.");
  EXPECT_EQ(BodyOf(Get("/model_info"))["weight_version"], "v1");
}

TEST_P(EngineConformance, LabelsWithoutAnUpdate) {
  const Response response = Post("/update_weight_version", {{"new_version", "9"}, {"abort_all_requests", false}});
  EXPECT_EQ(StatusOf(response), 200);
  EXPECT_EQ(BodyOf(response)["success"], true);
  EXPECT_EQ(BodyOf(response)["new_version"], "9");
  EXPECT_EQ(BodyOf(Get("/model_info"))["weight_version"], "9");
  EXPECT_EQ(StatusOf(Post("/update_weight_version", json::object())), 400);
  EXPECT_EQ(BodyOf(Get("/model_info"))["weight_version"], "9");
}

TEST_P(EngineConformance, AnUnpausedUpdateWaitsForTheRequestsInFlight) {
  auto running = GenerateInBackground(200);
  AwaitBusy();
  Install({TensorOf("model.norm.weight")});
  const json answer = BodyOf(running.get());
  EXPECT_EQ(answer["output_ids"].size(), 200U);
}

TEST_P(EngineConformance, RefusesBadBodies) {
  const std::string path = "/update_weights_from_tensor";
  Begin();
  for (const json& body :
       {json{{"flush_cache", false}}, json{{"serialized_named_tensors", "abc"}, {"flush_cache", false}},
        json{{"serialized_named_tensors", {"!!!not base64!!!"}}, {"flush_cache", false}}, json::array()}) {
    const Response response = Post(path, body);
    EXPECT_EQ(StatusOf(response), 400) << body;
    const json answer = BodyOf(response);
    EXPECT_EQ(answer.value("object", json()), "error") << answer;
    EXPECT_EQ(answer.value("type", json()), "Bad Request");
    EXPECT_EQ(answer.value("code", json()), 400);
    EXPECT_TRUE(answer.contains("param") && answer["param"].is_null());
    EXPECT_TRUE(answer.value("message", json()).is_string());
  }
  EXPECT_EQ(StatusOf(Send(path, "garbage")), 400);
  End();
  ExpectOriginal();
}

// ---- what is swallowed: a 200 proves nothing

TEST_P(EngineConformance, SwallowsNamesThatTheModelLacks) {
  Tensor norm = TensorOf("model.norm.weight");
  std::ranges::fill(norm.bytes, std::byte{0});
  for (const char* name : {"model.nonsense.weight", "modle.norm.weight", "model.layers.77.self_attn.q_proj.weight",
                           "model.layers.77.input_layernorm.weight"}) {
    Tensor unknown = norm;
    unknown.spec.name = name;
    Install({unknown});
  }
  ExpectOriginal();
}

// What Qwen3's loader takes for a checkpoint without the prefix.
TEST_P(EngineConformance, AddsAMissingModelPrefix) {
  Tensor norm = TensorOf("model.norm.weight");
  std::ranges::fill(norm.bytes, std::byte{0});
  Install({norm});
  const auto zeroed = Checksums();
  Restore();
  norm.spec.name = "norm.weight";
  Install({norm});
  EXPECT_EQ(Checksums(), zeroed);
  Restore();
}

TEST_P(EngineConformance, SwallowsMoreElementsThanRanksAndUnknownFields) {
  Load load({TensorOf("model.norm.weight")});
  load.slot().AddReaders(static_cast<std::int32_t>(server_->tp_size));
  json body = UpdateBody(load, server_->tp_size + 1);
  body["no_such_field"] = 1;
  Begin();
  EXPECT_EQ(StatusOf(Post("/update_weights_from_tensor", body)), 200);
  // No tensors at all.
  body = {
      {"serialized_named_tensors", std::vector<std::string>(server_->tp_size, engine::sglang::Base64("\x80\x04]."))},
      {"flush_cache", false}};
  EXPECT_EQ(StatusOf(Post("/update_weights_from_tensor", body)), 200);
  End();
  EXPECT_TRUE(exec::WaitUntil([&load] { return load.slot().free(); }, exec::Now() + kPatience));
  ExpectOriginal();
}

TEST_P(EngineConformance, ConvertsOtherTypesWithoutAWord) {
  const Tensor norm = TensorOf("model.norm.weight");
  Tensor zero = norm;
  std::ranges::fill(zero.bytes, std::byte{0});
  Install({zero});
  EXPECT_FALSE(weights::CompareRankHashes(OriginalChecksums(), Checksums()).empty());
  Tensor wide = norm;  // float32 whose upper halves are the original
  wide.spec.dtype = weights::DType::kFloat32;
  wide.bytes.assign(norm.bytes.size() * 2, std::byte{0});
  for (std::size_t i = 0; i < norm.bytes.size(); i += 2) {
    std::memcpy(&wide.bytes[i * 2 + 2], &norm.bytes[i], 2);
  }
  Install({wide});
  ExpectOriginal();
  // Even whole numbers: zeros are zeros.
  Tensor whole = zero;
  whole.spec.dtype = weights::DType::kInt32;
  whole.bytes.assign(norm.bytes.size() * 2, std::byte{0});
  Install({zero});
  const auto zeroed = Checksums();
  Restore();
  Install({whole});
  EXPECT_EQ(Checksums(), zeroed);
  Restore();
  ExpectOriginal();
}

TEST_P(EngineConformance, CutsALongShardedTensorAndPadsAShortOne) {
  const Tensor original = TensorOf("model.layers.0.self_attn.q_proj.weight");
  const std::size_t row = original.bytes.size() / static_cast<std::size_t>(original.spec.shape[0]);
  Tensor longer = original;
  longer.spec.shape[0] += 2;
  longer.bytes.resize(longer.bytes.size() + 2 * row, std::byte{1});
  Install({longer});
  ExpectOriginal();

  Tensor blanked = original;
  std::fill(blanked.bytes.end() - static_cast<std::ptrdiff_t>(2 * row), blanked.bytes.end(), std::byte{0});
  Install({blanked});
  const auto padded = Checksums();
  Restore();
  Tensor shorter = original;
  shorter.spec.shape[0] -= 2;
  shorter.bytes.resize(shorter.bytes.size() - 2 * row);
  Install({shorter});
  EXPECT_EQ(Checksums(), padded);
  Restore();
  ExpectOriginal();
}

// ---- the checker

TEST_P(EngineConformance, ReportsAHashOfEveryParameterOfEveryRank) {
  const json report = BodyOf(Post("/weights_checker", {{"action", "checksum"}}));
  EXPECT_EQ(report["success"], true);
  EXPECT_EQ(report["per_engine_checksum"].get<std::string>().size(), 64U);
  ASSERT_EQ(report["ranks"].size(), server_->tp_size);
  for (const json& rank : report["ranks"]) {
    EXPECT_EQ(rank["per_gpu_checksum"].get<std::string>().size(), 64U);
    EXPECT_EQ(rank["parallelism_info"].is_array(), has_sessions()) << rank["parallelism_info"];
    for (const auto& [name, hash] : rank["checksums"].items()) {
      EXPECT_EQ(hash.get<std::string>().size(), 16U) << name;
    }
  }
  ExpectOriginal();
  EXPECT_EQ(StatusOf(Post("/weights_checker", {{"action", "bogus"}})), 400);
}

// ---- requests, memory, health

TEST_P(EngineConformance, GeneratesTheSameTokensTwiceAndSaysFromWhichWeights) {
  ASSERT_EQ(StatusOf(Post("/update_weight_version", {{"new_version", "g1"}, {"abort_all_requests", false}})), 200);
  const json first = BodyOf(Post("/generate", GenerateBody(6)));
  ASSERT_EQ(first["output_ids"].size(), 6U) << first;
  EXPECT_EQ(BodyOf(Post("/generate", GenerateBody(6)))["output_ids"], first["output_ids"]);
  const json& meta = first["meta_info"];
  EXPECT_EQ(meta["weight_version"], "g1");
  EXPECT_EQ(meta["finish_reason"]["type"], "length");
  EXPECT_EQ(meta["completion_tokens"], 6);
  EXPECT_EQ(meta["prompt_tokens"], 4);
  EXPECT_EQ(meta.contains("weight_versions"), server_->family == SessionFamily::kC) << meta;
}

TEST_P(EngineConformance, ReleasesAndResumesMemory) {
  AwaitIdle();  // or it dies of it
  const Response released = Post("/release_memory_occupation", {{"tags", {"kv_cache"}}});
  EXPECT_EQ(StatusOf(released), 200);
  EXPECT_TRUE(BodyOf(released).is_null());
  const Response resumed = Post("/resume_memory_occupation", {{"tags", {"kv_cache"}}});
  EXPECT_EQ(StatusOf(resumed), 200);
  EXPECT_TRUE(BodyOf(resumed).is_null());
  EXPECT_EQ(StatusOf(Post("/generate", GenerateBody(2))), 200);
}

TEST_P(EngineConformance, IsHealthyWhileItServes) {
  EXPECT_EQ(StatusOf(Get("/health")), 200);
  EXPECT_EQ(StatusOf(Get("/health_generate")), 200);
  if (server_->family == SessionFamily::kC) {
    Pause("abort");
    EXPECT_EQ(StatusOf(Get("/ready")), 503);
    EXPECT_EQ(StatusOf(Get("/ping")), 200);
    Continue();
    EXPECT_EQ(StatusOf(Get("/ready")), 200);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineConformance, testing::ValuesIn(Subjects()), NameOf);

}  // namespace refit::conformance
