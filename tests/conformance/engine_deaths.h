// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What kills a whole server: nothing in deserialising or loading is caught (docs/spec/sglang-wire.md §1.4). Each case
// has a server of its own. The call gets no complete answer, and the process ends. Included once per program.

#pragma once

#include "tests/conformance/engine_suite.h"

namespace refit::conformance {

class EngineDeaths : public EngineSuite {
 protected:
  void SetUp() override {
    const std::shared_ptr<Server> server = GetParam().victim();
    if (server == nullptr) {
      GTEST_SKIP() << "no server to kill";
    }
    Use(server);
  }
  void TearDown() override { server_.reset(); }

  void ExpectDeath(const std::string& path, const json& body) const {
    const Response response = Post(path, body);
    EXPECT_FALSE(response.has_value()) << path << " was answered: " << response->status << ' ' << response->body;
    EXPECT_TRUE(exec::WaitUntil([this] { return server_->ended(); }, exec::Now() + kPatience)) << "it lives";
  }
  void ExpectDeathOfUpdate(const json& body) const {
    Begin();
    ExpectDeath("/update_weights_from_tensor", body);
  }
  void ExpectDeathOfTensor(const Tensor& tensor) const {
    Load load({tensor});
    load.slot().AddReaders(static_cast<std::int32_t>(server_->tp_size));
    ExpectDeathOfUpdate(UpdateBody(load));
  }
};

TEST_P(EngineDeaths, AListShorterThanTheRanks) {
  Load load({TensorOf("model.norm.weight")});
  ExpectDeathOfUpdate(UpdateBody(load, server_->tp_size - 1));
}

TEST_P(EngineDeaths, GarbageForTheLastRankOnly) {
  Load load({TensorOf("model.norm.weight")});
  load.slot().AddReaders(static_cast<std::int32_t>(server_->tp_size));
  json body = UpdateBody(load);
  body["serialized_named_tensors"].back() = engine::sglang::Base64("\x80\x05garbage!");
  ExpectDeathOfUpdate(body);
}

TEST_P(EngineDeaths, AWrongShapeOfAParameterThatIsNotSharded) {
  Tensor norm = TensorOf("model.norm.weight");
  --norm.spec.shape[0];
  norm.bytes.resize(norm.bytes.size() - 2);
  ExpectDeathOfTensor(norm);
}

// torch's manager of shared memory takes 59 bytes, which no other double would know.
TEST_P(EngineDeaths, ALoadWithALongName) {
  Load load({TensorOf("model.norm.weight")}, "-" + std::string(60, 'x'));
  load.slot().AddReaders(static_cast<std::int32_t>(server_->tp_size));
  ExpectDeathOfUpdate(UpdateBody(load));
}

TEST_P(EngineDeaths, AnUnknownNameThatLooksFusedInALiveLayer) {
  Tensor norm = TensorOf("model.norm.weight");
  norm.spec.name = "model.layers.0.self_attn.q_proj.nonsense";
  ExpectDeathOfTensor(norm);
}

TEST_P(EngineDeaths, AnUnknownLoadFormat) {
  Load load({TensorOf("model.norm.weight")});
  json body = UpdateBody(load);
  body["load_format"] = "nope";
  ExpectDeathOfUpdate(body);
}

TEST_P(EngineDeaths, ResumingMemoryThatWasNotReleased) {
  ExpectDeath("/resume_memory_occupation", {{"tags", {"kv_cache"}}});
}

TEST_P(EngineDeaths, OnFamilyAFlushingWithAnUpdateWhileRetracted) {
  if (server_->family != SessionFamily::kA) {
    GTEST_SKIP();
  }
  auto running = GenerateInBackground(900);
  AwaitBusy();
  Pause("retract");
  Load load({TensorOf("model.norm.weight")});
  load.slot().AddReaders(static_cast<std::int32_t>(server_->tp_size));
  json body = UpdateBody(load);
  body["flush_cache"] = true;
  ExpectDeath("/update_weights_from_tensor", body);
  EXPECT_FALSE(running.get().has_value());  // requests in flight get no answer either
}

TEST_P(EngineDeaths, OnFamilyBWhatIsOutOfOrder) {
  if (server_->family != SessionFamily::kB) {
    GTEST_SKIP();
  }
  Load load({TensorOf("model.norm.weight")});
  ExpectDeath("/update_weights_from_tensor", UpdateBody(load));
  Use(GetParam().victim());
  ExpectDeath("/end_weight_update", json::object());
  Use(GetParam().victim());
  Begin();
  ExpectDeath("/begin_weight_update", {{"selector", "all"}});
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineDeaths, testing::ValuesIn(Subjects()), NameOf);

}  // namespace refit::conformance
