// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A whole fleet for a test: the hosts of controller, policy workers and agents in this process, their engines as real
// refit-engine processes, everything else as in production.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/str.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/exec/clock.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/agent_host.h"
#include "refit/runtime/controller_host.h"
#include "refit/runtime/policy_host.h"
#include "tests/support/temp_folder.h"

namespace refit::test {

struct FleetOptions {
  std::string shape = "tiny-llama";  // of the engines' and the policies' model
  std::uint32_t policies = 2;
  std::uint32_t engines = 2;
  std::uint32_t tp_size = 3;
  std::string family = "c";
  sync::Profile profile = sync::kResilient;
  runtime::VerifyWhen verify = runtime::VerifyWhen::kAlways;
  std::string transport = "auto";  // "loopback": a link, since all hosts are in one process
  std::string nixl_library = {};
  ByteCount load_bytes = 64 * kKiB;                        // several loads even of a tiny model
  std::vector<std::vector<std::string>> engine_args = {};  // more arguments, per engine
  bool use_fault_tolerance = false;
  Duration call_deadline = std::chrono::seconds(5);
  Duration update_deadline = std::chrono::seconds(5);
  std::optional<runtime::RouterOptions> router = {};
};

// A random checkpoint in the folder; the same shape and seed give the same bytes.
inline std::string MakeCheckpoint(const TempFolder& folder, std::string_view name, std::string_view shape,
                                  std::uint64_t seed) {
  const std::string path = folder / name;
  const auto config = checkpoint::RandomShape(shape);
  EXPECT_TRUE(config.has_value()) << config.status().ToString();
  const Status written = checkpoint::WriteRandomCheckpoint(*config, seed, path);
  EXPECT_TRUE(written.ok()) << written.ToString();
  return path;
}

class Fleet {
 public:
  explicit Fleet(FleetOptions options = {}) : options_(std::move(options)) {
    model_ = MakeCheckpoint(folder_, "model", options_.shape, 1);
    runtime::ControllerHostOptions controller{
        .profile = options_.profile,
        .use_fault_tolerance = options_.use_fault_tolerance,
        .health = {.interval = std::chrono::milliseconds(200), .timeout = std::chrono::milliseconds(1500)},
        .verify = options_.verify,
        .router = options_.router};
    for (std::uint32_t slot = 0; slot < options_.engines; ++slot) {
      controller.slots.push_back(SlotIndex(slot));
    }
    for (std::uint32_t rank = 0; rank < options_.policies; ++rank) {
      controller.policy_ranks.push_back(PolicyRank(rank));
    }
    auto started = runtime::ControllerHost::Start(controller);
    EXPECT_TRUE(started.has_value()) << started.status().ToString();
    controller_ = *std::move(started);
    client_ = rpc::ControllerClient::Connect(controller_->address());
    policies_.resize(options_.policies);
    agents_.resize(options_.engines);
    for (std::uint32_t rank = 0; rank < options_.policies; ++rank) {
      StartPolicy(rank, model_);
    }
    for (std::uint32_t slot = 0; slot < options_.engines; ++slot) {
      StartAgent(slot);
    }
  }

  void StartPolicy(std::uint32_t rank, const std::string& source) {
    policies_[rank].reset();
    auto started = runtime::PolicyHost::Start({.rank = PolicyRank(rank),
                                               .source = source,
                                               .controller = controller_->address(),
                                               .transports = Transports(),
                                               .register_deadline = std::chrono::seconds(20)});
    ASSERT_TRUE(started.has_value()) << started.status().ToString();
    policies_[rank] = *std::move(started);
  }
  void StopPolicy(std::uint32_t rank) { policies_[rank].reset(); }

  void StartAgent(std::uint32_t slot) {
    runtime::AgentHostOptions options{.slot = SlotIndex(slot),
                                      .controller = controller_->address(),
                                      .tp_size = options_.tp_size,
                                      .engine_program = REFIT_ENGINE_PROGRAM,
                                      .engine_args = {"--model", model_, "--family", options_.family, "--load-format",
                                                      "dummy", "--crash-hang-seconds", "0.2"},
                                      .run_directory = folder_ / StrCat("agent-", slot),
                                      .load_bytes = options_.load_bytes,
                                      .transport = options_.transport,
                                      .transports = Transports(),
                                      .piece_bytes = 64 * kKiB,
                                      .call_deadline = options_.call_deadline,
                                      .update_deadline = options_.update_deadline};
    if (slot < options_.engine_args.size()) {
      options.engine_args.insert(options.engine_args.end(), options_.engine_args[slot].begin(),
                                 options_.engine_args[slot].end());
    }
    auto started = runtime::AgentHost::Start(options);
    ASSERT_TRUE(started.has_value()) << started.status().ToString();
    agents_[slot] = *std::move(started);
  }
  void StopAgent(std::uint32_t slot) { agents_[slot].reset(); }

  Status Shutdown() { return client_->Shutdown(std::chrono::seconds(10)); }
  rpc::SyncReport Sync(const std::string& source = {}, Duration budget = std::chrono::seconds(30)) {
    auto report = client_->Sync({StrCat("request-", ++requests_), source, budget}, [](const rpc::SyncProgress&) {});
    EXPECT_TRUE(report.has_value()) << report.status().ToString();
    return report.has_value() ? *std::move(report) : rpc::SyncReport{};
  }
  rpc::FleetReport GetStatus() {
    auto report = client_->GetStatus(std::chrono::seconds(10));
    EXPECT_TRUE(report.has_value()) << report.status().ToString();
    return report.has_value() ? *std::move(report) : rpc::FleetReport{};
  }
  rpc::VerifyReport Verify(const std::string& model = {}) {
    auto report = client_->Verify({.slot = -1, .model = model, .budget = std::chrono::seconds(30)});
    EXPECT_TRUE(report.has_value()) << report.status().ToString();
    return report.has_value() ? *std::move(report) : rpc::VerifyReport{};
  }
  // Until the slot is in that state, with another life than `old`.
  rpc::SlotReport AwaitState(std::uint32_t slot, const std::string& state, Incarnation old = {}) {
    rpc::SlotReport now;
    const bool reached = exec::WaitUntil(
        [&] {
          now = GetStatus().slots[slot];
          return now.state == state && now.incarnation != old;
        },
        exec::Now() + std::chrono::seconds(20));
    EXPECT_TRUE(reached) << "engine " << slot << " is " << now.state << ", not " << state << ": " << now.last_error;
    return now;
  }
  // Until every slot has an engine again that is not `old`'s.
  void AwaitNewIncarnation(std::uint32_t slot, Incarnation old) {
    const bool back = exec::WaitUntil(
        [&] {
          const rpc::SlotReport now = GetStatus().slots[slot];
          return !now.incarnation.is_zero() && now.incarnation != old;
        },
        exec::Now() + std::chrono::seconds(20));
    EXPECT_TRUE(back) << "engine " << slot << " did not come back";
  }

  const std::string& model() const { return model_; }
  const std::string& controller_address() const { return controller_->address(); }
  const TempFolder& folder() const { return folder_; }
  const runtime::AgentHost& agent(std::uint32_t slot) const { return *agents_[slot]; }

 private:
  transport::TransportOptions Transports() const {
    transport::TransportOptions transports;
    transports.nixl.library = options_.nixl_library;
    return transports;
  }

  FleetOptions options_;
  TempFolder folder_;
  std::string model_;
  std::unique_ptr<runtime::ControllerHost> controller_;
  std::unique_ptr<rpc::ControllerClient> client_;
  std::vector<std::unique_ptr<runtime::PolicyHost>> policies_;
  std::vector<std::unique_ptr<runtime::AgentHost>> agents_;
  int requests_ = 0;
};

// Every difference of a report, for messages.
inline std::string Describe(const rpc::VerifyReport& report) {
  std::string text = report.status.ToString();
  for (const rpc::EngineVerification& engine : report.engines) {
    text += StrCat("; engine ", engine.slot, ": ", engine.status.ToString(), ", ", engine.differences.size(),
                   " differences");
  }
  return text;
}
inline std::string Describe(const rpc::SyncReport& report) {
  std::string text = report.status.ToString();
  for (const rpc::EngineReport& engine : report.engines) {
    text += StrCat("; engine ", engine.slot, ": ", engine.status.ToString(), " ", sync::ToString(engine.residue));
  }
  for (const std::string& note : report.notes) {
    text += StrCat("; note: ", note);
  }
  return text;
}

// Every handshake that `act` brings about, as the agents log them: "engine 0: link to policy rank 1".
inline std::vector<std::string> HandshakesOf(const std::function<void()>& act) {
  testing::internal::CaptureStderr();
  act();
  const std::string log = testing::internal::GetCapturedStderr();
  std::vector<std::string> handshakes;
  for (std::size_t end = log.find(" proved over "); end != std::string::npos;
       end = log.find(" proved over ", end + 1)) {
    const std::size_t begin = log.rfind("engine ", end);
    handshakes.push_back(log.substr(begin, end - begin));
  }
  std::sort(handshakes.begin(), handshakes.end());
  return handshakes;
}

}  // namespace refit::test
