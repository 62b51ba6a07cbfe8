// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The reference engine, each family, as a process: the same cases that real servers pass (RC-TEST-02).

#include <map>

#include "refit/checkpoint/random_checkpoint.h"
#include "refit/engine/process/child_process.h"
#include "tests/conformance/engine_cases.h"
#include "tests/conformance/engine_deaths.h"
#include "tests/support/temp_folder.h"

namespace refit::conformance {
namespace {

constexpr std::uint32_t kTpSize = 2;
constexpr const char* kKey = "conformance";

const test::TempFolder& Folder() {
  static const test::TempFolder folder;
  return folder;
}

std::string ModelFolder() {
  static const std::string model = [] {
    const std::string path = Folder() / "model";
    const Status written = checkpoint::WriteRandomCheckpoint(*checkpoint::RandomShape("tiny"), 1, path);
    REFIT_CHECK(written.ok(), written.message().c_str());
    return path;
  }();
  return model;
}

class ReferenceServer final : public Server {
 public:
  explicit ReferenceServer(SessionFamily session_family) {
    static int serial = 0;
    admin_key = kKey;
    family = session_family;
    tp_size = kTpSize;
    model = ModelFolder();
    // Times as short as they may be: what waits here waits a second or more on a real server.
    auto started = engine::process::ChildProcess::Start(
        {.arguments = {REFIT_ENGINE_PROGRAM, "--model", model, "--tp", StrCat(kTpSize), "--port", "0", "--family",
                       std::string(sync::ToString(family)), "--admin-api-key", kKey, "--crash-hang-seconds", "0.05",
                       "--health-wait-seconds", "0.05", "--pause-poll-seconds", "0.01"},
         .environment = {},
         .log_path = Folder() / StrCat("engine-", ++serial, ".log"),
         .ready_prefix = "refit-engine: ready url="});
    REFIT_CHECK(started.has_value(), started.status().message().c_str());
    child_.emplace(*std::move(started));
    const auto ready = child_->WaitReady(exec::Now() + kPatience);
    REFIT_CHECK(ready.has_value(), ready.status().message().c_str());
    url = ready->substr(0, ready->find(' '));
  }
  bool ended() override { return !child_->running(); }

 private:
  std::optional<engine::process::ChildProcess> child_;
};

}  // namespace

std::vector<Subject> Subjects() {
  static std::map<SessionFamily, std::shared_ptr<Server>> shared;
  std::vector<Subject> subjects;
  for (const SessionFamily family : {SessionFamily::kA, SessionFamily::kB, SessionFamily::kC}) {
    const auto victim = [family] { return std::make_shared<ReferenceServer>(family); };
    const auto living = [family, victim] {
      std::shared_ptr<Server>& server = shared[family];
      if (server == nullptr || server->ended()) {
        server = victim();
      }
      return server;
    };
    subjects.push_back({StrCat("Family", sync::ToString(family)), living, victim});
  }
  return subjects;
}

}  // namespace refit::conformance
