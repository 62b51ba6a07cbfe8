// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What every engine with SGLang's weight-update contract does, whoever wrote it: one list of cases, run against the
// reference engine in each family (engine_reference_test.cc) and against real servers (engine_conformance.cc). Where
// the two differ, the reference engine is wrong. Every case leaves the server alive, unpaused, without a session, and
// with the checkpoint's weights; what kills a server is in engine_deaths.h.
//
// A program that instantiates it defines Subjects().

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/checkpoint/checkpoint.h"
#include "refit/device/shared_memory.h"
#include "refit/engine/sglang/payload_pickle.h"
#include "refit/engine/sglang/sglang_engine.h"
#include "refit/exec/clock.h"
#include "refit/http/client.h"
#include "refit/runtime/source.h"

namespace refit::conformance {

using nlohmann::json;
using sync::AnswerKind;
using sync::Operation;
using sync::SessionFamily;

constexpr Duration kPatience = std::chrono::seconds(180);  // more than any living server needs

// A server that runs; its destructor ends it where it is ours.
class Server {
 public:
  virtual ~Server() = default;
  std::string url;
  std::string admin_key;  // empty: none
  SessionFamily family = SessionFamily::kA;
  std::uint32_t tp_size = 1;
  std::string model;         // the checkpoint that it was started from
  virtual bool ended() = 0;  // its process is gone
};

struct Subject {
  std::string name;
  std::function<std::shared_ptr<Server>()> living;  // one for cases that leave it as it was
  std::function<std::shared_ptr<Server>()> victim;  // one of its own for a case that kills it; null: none to kill
};

inline void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

std::vector<Subject> Subjects();

struct Tensor {
  weights::TensorSpec spec;
  std::vector<std::byte> bytes;
};

// Tensors in a load object of their own. Its name is never used again: torch removes names of dead clients.
class Load {
 public:
  explicit Load(const std::vector<Tensor>& tensors, std::string_view name_end = "") {
    static std::atomic<int> serial = 0;
    ByteCount size = 0;
    for (const Tensor& tensor : tensors) {
      size = RoundUp(size, 8);
      payload_.tensors.push_back({tensor.spec, size});
      size += tensor.bytes.size();
    }
    auto memory = device::SharedMemory::Create(device::OwnedName(StrCat("suite-", ++serial, name_end)),
                                               device::LoadSlot::ObjectSize(std::max<ByteCount>(size, 8)));
    REFIT_CHECK(memory.has_value(), memory.status().message().c_str());
    memory_ = *std::move(memory);
    payload_.load = engine::HostLoad{memory_->name(), std::max<ByteCount>(size, 8)};
    slot().Initialise();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::ranges::copy(tensors[i].bytes, slot().data().subspan(payload_.tensors[i].offset).begin());
    }
  }
  device::LoadSlot slot() { return device::LoadSlot(memory_->bytes()); }
  const engine::RankPayload& payload() const { return payload_; }
  std::string text() const { return engine::sglang::Base64(engine::sglang::PicklePayload(payload_)); }

 private:
  std::unique_ptr<device::SharedMemory> memory_;
  engine::RankPayload payload_;
};

class EngineSuite : public testing::TestWithParam<Subject> {
 protected:
  using Response = Result<http::Response>;

  void Use(std::shared_ptr<Server> server) {
    server_ = std::move(server);
    ASSERT_NE(server_, nullptr);
    auto engine = engine::sglang::ConnectSglang({.url = server_->url, .admin_key = server_->admin_key});
    ASSERT_TRUE(engine.has_value());
    engine_ = *std::move(engine);
    auto source = runtime::Source::Open(server_->model);
    ASSERT_TRUE(source.has_value()) << source.status().ToString();
    source_ = *std::move(source);
  }

  // ---- raw HTTP
  Response Send(const std::string& path, const std::string& body, Duration deadline = kPatience) const {
    return http::Send({.url = server_->url + path,
                       .body = body,
                       .bearer = server_->admin_key,
                       .deadline = deadline,
                       .body_limit = 64 * kMiB});
  }
  Response Post(const std::string& path, const json& body) const { return Send(path, body.dump()); }
  Response Get(const std::string& path) const { return Send(path, ""); }
  static int StatusOf(const Response& response) {
    EXPECT_TRUE(response.has_value()) << response.status().ToString();
    return response.has_value() ? response->status : 0;
  }
  static json BodyOf(const Response& response) {
    return response.has_value() ? json::parse(response->body, nullptr, false) : json();
  }
  void ExpectRefused(const Response& response, const std::string& message) const {
    EXPECT_EQ(StatusOf(response), 400);
    const json body = BodyOf(response);
    EXPECT_EQ(body.value("success", json()), false) << body;
    EXPECT_EQ(body.value("message", json()), message);
  }

  // ---- weights
  Tensor TensorOf(const std::string& name) const {
    const weights::Manifest& manifest = *source_->manifest();
    for (std::size_t i = 0; i < manifest.tensor_count(); ++i) {
      if (manifest.tensors()[i].name == name) {
        const Bytes bytes = source_->tensors()[i];
        return {manifest.tensors()[i], {bytes.begin(), bytes.end()}};
      }
    }
    ADD_FAILURE() << name << " is not in " << server_->model;
    return {};
  }
  std::vector<Tensor> AllTensors() const {
    std::vector<Tensor> all;
    for (const weights::TensorSpec& spec : source_->manifest()->tensors()) {
      all.push_back(TensorOf(spec.name));
    }
    return all;
  }
  std::vector<weights::RankHashes> Checksums() const {
    auto sums = engine_->Checksums(kPatience);
    EXPECT_TRUE(sums.has_value()) << sums.status().ToString();
    return sums.has_value() ? *std::move(sums) : std::vector<weights::RankHashes>{};
  }
  std::vector<weights::RankHashes> OriginalChecksums() const {
    auto sums = source_->ExpectedHashes({.tp_size = server_->tp_size});
    EXPECT_TRUE(sums.has_value()) << sums.status().ToString();
    return sums.has_value() ? *std::move(sums) : std::vector<weights::RankHashes>{};
  }
  void ExpectOriginal() const { EXPECT_TRUE(weights::CompareRankHashes(OriginalChecksums(), Checksums()).empty()); }

  // ---- sessions
  bool has_sessions() const { return server_->family != SessionFamily::kA; }
  void Begin() const {
    if (has_sessions()) {
      ASSERT_EQ(StatusOf(Post("/begin_weight_update", {{"selector", "all"}})), 200);
    }
  }
  void End() const {
    if (has_sessions()) {
      ASSERT_EQ(StatusOf(Post("/end_weight_update", json::object())), 200);
    }
  }
  json UpdateBody(const Load& load, std::size_t count) const {
    return {{"serialized_named_tensors", std::vector<std::string>(count, load.text())},
            {"load_format", "flattened_bucket"},
            {"flush_cache", false}};
  }
  json UpdateBody(const Load& load) const { return UpdateBody(load, server_->tp_size); }
  // In a session of its own; the count must come back. Returns the server's message.
  std::string Install(const std::vector<Tensor>& tensors) const {
    Load load(tensors);
    load.slot().AddReaders(static_cast<std::int32_t>(server_->tp_size));
    Begin();
    const Response response = Post("/update_weights_from_tensor", UpdateBody(load));
    EXPECT_EQ(StatusOf(response), 200) << BodyOf(response);
    EXPECT_TRUE(exec::WaitUntil([&load] { return load.slot().free(); }, exec::Now() + kPatience))
        << load.slot().count();
    End();
    return BodyOf(response).value("message", "");
  }
  void Restore() const { Install(AllTensors()); }

  // ---- requests
  json GenerateBody(int tokens) const {
    return {{"input_ids", {5, 6, 7, 8}},
            {"sampling_params", {{"temperature", 0}, {"max_new_tokens", tokens}, {"ignore_eos", true}}}};
  }
  std::future<Response> GenerateInBackground(int tokens) const {
    return std::async(std::launch::async, [this, tokens] { return Post("/generate", GenerateBody(tokens)); });
  }
  // Until a request runs: then nothing can be flushed.
  void AwaitBusy() const {
    EXPECT_TRUE(
        exec::WaitUntil([this] { return StatusOf(Get("/flush_cache?timeout=0")) == 400; }, exec::Now() + kPatience));
  }
  // Until nothing runs: an answered request may still be in the scheduler's last batch.
  void AwaitIdle() const {
    EXPECT_TRUE(
        exec::WaitUntil([this] { return StatusOf(Get("/flush_cache?timeout=0")) == 200; }, exec::Now() + kPatience));
  }
  void Pause(const std::string& mode) const { ASSERT_EQ(StatusOf(Post("/pause_generation", {{"mode", mode}})), 200); }
  void Continue() const { ASSERT_EQ(StatusOf(Post("/continue_generation", {{"torch_empty_cache", false}})), 200); }

  std::shared_ptr<Server> server_;
  std::unique_ptr<engine::Engine> engine_;
  std::shared_ptr<runtime::Source> source_;
};

inline std::string NameOf(const testing::TestParamInfo<Subject>& info) { return info.param.name; }

}  // namespace refit::conformance
