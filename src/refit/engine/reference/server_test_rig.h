// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A reference engine behind its server in the test's process, with a tiny random checkpoint, and calls to it.

#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "refit/checkpoint/checkpoint.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/device/shared_memory.h"
#include "refit/engine/reference/server.h"
#include "refit/engine/sglang/payload_pickle.h"
#include "refit/exec/clock.h"
#include "refit/http/client.h"
#include "tests/support/temp_folder.h"

namespace refit::engine::reference {

constexpr Duration kAmple = std::chrono::seconds(60);        // nothing should come near it
constexpr Duration kShort = std::chrono::milliseconds(300);  // for calls that must not be answered

class ServerRig {
 public:
  struct Setup {
    sync::SessionFamily family = sync::SessionFamily::kA;
    std::int64_t tp_size = 2;
    std::string shape = "tiny";
    Keys keys = {};
    std::vector<std::string> faults = {};
    EngineOptions::MemorySaver memory_saver = EngineOptions::MemorySaver::kOff;
  };

  explicit ServerRig(Setup setup) : setup_(std::move(setup)) {
    WriteCheckpoint("served", 1);
    EngineOptions options;
    options.model_folder = folder_ / "served";
    options.tp_size = setup_.tp_size;
    options.family = setup_.family;
    options.memory_saver = setup_.memory_saver;
    options.pause_poll = std::chrono::milliseconds(1);
    options.health_wait = std::chrono::milliseconds(20);
    options.health_timeout = std::chrono::milliseconds(100);
    options.crash_hang = std::chrono::milliseconds(50);
    options.end_process = [this] { ended_ = true; };
    auto engine = ReferenceEngine::Make(options);
    REFIT_CHECK(engine.has_value(), engine.status().message().c_str());
    engine_ = *std::move(engine);
    ServerOptions server;
    server.keys = setup_.keys;
    for (const std::string& spec : setup_.faults) {
      server.faults.push_back(*ParseFault(spec));
    }
    auto started = ReferenceServer::Start(*engine_, server);
    REFIT_CHECK(started.has_value(), started.status().message().c_str());
    server_ = *std::move(started);
  }

  ReferenceEngine& engine() { return *engine_; }
  bool ended() const { return ended_.load(); }

  std::string WriteCheckpoint(const std::string& name, std::uint64_t seed) {
    const Status status =
        checkpoint::WriteRandomCheckpoint(*checkpoint::RandomShape(setup_.shape), seed, folder_ / name);
    REFIT_CHECK(status.ok(), status.message().c_str());
    return folder_ / name;
  }

  Result<http::Response> Get(const std::string& path, const std::string& key = "", Duration deadline = kAmple) {
    return Send(path, "", key, deadline);
  }
  Result<http::Response> Post(const std::string& path, const nlohmann::json& body, const std::string& key = "",
                              Duration deadline = kAmple) {
    return Send(path, body.dump(), key, deadline);
  }
  Result<http::Response> Send(const std::string& path, const std::string& body, const std::string& key,
                              Duration deadline) {
    return http::Send({.url = "http://127.0.0.1:" + std::to_string(server_->port()) + path,
                       .body = body,
                       .bearer = key,
                       .deadline = deadline,
                       .body_limit = 16 * kMiB});
  }
  int StatusOf(const std::string& path, const nlohmann::json& body) {
    const auto response = Post(path, body);
    return response.has_value() ? response->status : 0;
  }

  nlohmann::json GenerateBody(int tokens) const {
    return {{"input_ids", {5, 6, 7, 8}},
            {"rid", "r1"},
            {"sampling_params", {{"temperature", 0}, {"max_new_tokens", tokens}, {"ignore_eos", true}}}};
  }
  std::future<Result<http::Response>> GenerateInBackground(int tokens) {
    return std::async(std::launch::async, [this, tokens] { return Post("/generate", GenerateBody(tokens)); });
  }
  void WaitForOccupancy(const std::function<bool(Occupancy)>& holds) {
    EXPECT_TRUE(exec::WaitUntil(
        [&] {
          bool held = false;
          engine_->scheduler().Between([&](Occupancy occupancy) { held = holds(occupancy); });
          return held;
        },
        exec::Now() + kAmple));
  }

  // An update body: `payload` for every rank, base64.
  nlohmann::json UpdateBody(const std::string& pickle, std::size_t count) const {
    return {{"serialized_named_tensors", std::vector<std::string>(count, sglang::Base64(pickle))},
            {"load_format", "flattened_bucket"},
            {"flush_cache", false}};
  }
  nlohmann::json UpdateBody(const std::string& pickle) const {
    return UpdateBody(pickle, static_cast<std::size_t>(setup_.tp_size));
  }

 private:
  Setup setup_;
  test::TempFolder folder_;
  std::atomic<bool> ended_ = false;
  std::unique_ptr<ReferenceEngine> engine_;
  std::unique_ptr<ReferenceServer> server_;
};

// A load object with every tensor of a checkpoint, and its payload.
struct LoadObject {
  std::unique_ptr<device::SharedMemory> memory;
  RankPayload payload;

  device::LoadSlot slot() const { return device::LoadSlot(memory->bytes()); }
};

inline LoadObject MakeLoad(const std::vector<std::pair<weights::TensorSpec, Bytes>>& tensors, std::string name = "") {
  static std::atomic<int> serial = 0;
  name = "server-test-" + (name.empty() ? std::to_string(++serial) : name);
  LoadObject load;
  ByteCount size = 0;
  for (const auto& [spec, bytes] : tensors) {
    size = RoundUp(size, 8);
    load.payload.tensors.push_back({spec, size});
    size += bytes.size();
  }
  auto memory = device::SharedMemory::Create(device::OwnedName(name), device::LoadSlot::ObjectSize(size));
  REFIT_CHECK(memory.has_value(), memory.status().message().c_str());
  load.memory = *std::move(memory);
  load.payload.load = HostLoad{load.memory->name(), size};
  load.slot().Initialise();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::ranges::copy(tensors[i].second, load.slot().data().subspan(load.payload.tensors[i].offset).begin());
  }
  return load;
}

inline LoadObject MakeLoadOf(const checkpoint::Checkpoint& source) {
  std::vector<std::pair<weights::TensorSpec, Bytes>> tensors;
  for (std::size_t i = 0; i < source.manifest().tensor_count(); ++i) {
    tensors.emplace_back(source.manifest().tensors()[i], source.bytes(i));
  }
  return MakeLoad(tensors);
}

}  // namespace refit::engine::reference
