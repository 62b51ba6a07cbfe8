// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The real sglang-router before real engines: whom it lists, and whom its users reach. Without the package
// (REFIT_ROUTER_PYTHON, from tools/router/fetch.sh) only what a double can show.

#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "refit/http/client.h"
#include "refit/http/server_double.h"
#include "refit/router/router_client.h"
#include "tests/integration/fleet.h"
#include "tests/support/plain_process.h"

namespace refit::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kPrompt = R"({"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":2,"temperature":0}})";

Result<nlohmann::json> Generate(const std::string& url, Duration deadline = seconds(10)) {
  const auto answer =
      http::Send({.url = url + "/generate", .body = std::string(kPrompt), .bearer = {}, .deadline = deadline});
  REFIT_RETURN_IF_ERROR(answer.status());
  if (answer->status != 200) {
    return Unavailable(StrCat(answer->status, ": ", answer->body));
  }
  return nlohmann::json::parse(answer->body, nullptr, false);
}

std::string PythonOfRouter() {
  const char* const python = std::getenv("REFIT_ROUTER_PYTHON");
  return python == nullptr ? "" : python;
}

class RealRouter : public testing::Test {
 protected:
  void SetUp() override {
    if (PythonOfRouter().empty()) {
      GTEST_SKIP() << "REFIT_ROUTER_PYTHON names no Python that has sglang-router";
    }
  }
  runtime::RouterOptions Options() const {
    runtime::RouterOptions options;
    options.command.python = PythonOfRouter();
    options.command.policy = "round_robin";
    options.log_path = folder_ / "router.log";
    return options;
  }
  // Those that the router lists, by slot; empty where it does not answer.
  static std::map<SlotIndex, router::Worker> Listed(const std::string& url) {
    std::map<SlotIndex, router::Worker> listed;
    const auto workers = router::RouterClient(url, "").List(seconds(2));
    for (const router::Worker& worker : workers.has_value() ? *workers : std::vector<router::Worker>()) {
      EXPECT_TRUE(listed.emplace(worker.slot, worker).second) << "two entries of engine " << worker.slot.value();
    }
    return listed;
  }
  static bool ListsAll(const std::string& url, const rpc::FleetReport& fleet) {
    const auto listed = Listed(url);
    return listed.size() == fleet.slots.size() &&
           std::all_of(fleet.slots.begin(), fleet.slots.end(), [&listed](const rpc::SlotReport& slot) {
             const auto found = listed.find(slot.slot);
             return found != listed.end() && found->second.incarnation == slot.incarnation &&
                    found->second.url == slot.engine_url;
           });
  }
  static void AwaitAllListed(Fleet& fleet, Duration within = seconds(20)) {
    const std::string url = fleet.GetStatus().router.url;
    EXPECT_TRUE(exec::WaitUntil([&] { return ListsAll(url, fleet.GetStatus()); }, exec::Now() + within))
        << fleet.GetStatus().router.status.ToString();
  }

  TempFolder folder_;
};

// Requests through the router, one after the other, until it ends: which versions answered, and what failed.
class Traffic {
 public:
  explicit Traffic(std::string url) : url_(std::move(url)), thread_([this] { Run(); }) {}
  ~Traffic() { Stop(); }
  void Stop() {
    over_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  int answers() const { return answers_; }
  const std::set<std::string>& versions() const { return versions_; }  // after Stop

 private:
  void Run() {
    while (!over_) {
      if (const auto answer = Generate(url_); answer.has_value() && answer->is_object()) {
        versions_.insert((*answer)["meta_info"].value("weight_version", ""));
        ++answers_;
      }
    }
  }

  const std::string url_;
  std::atomic<bool> over_ = false;
  std::atomic<int> answers_ = 0;
  std::set<std::string> versions_;
  std::thread thread_;
};

// RC-RTR-01, -04, RC-ROLE-07: nobody before it serves what is published, then every one of them by its labels.
TEST_F(RealRouter, ListsEveryEngineWithItsLabelsOnceItServesWhatIsPublished) {
  Fleet fleet({.tp_size = 1, .router = Options()});
  const std::string url = fleet.GetStatus().router.url;
  ASSERT_TRUE(exec::WaitUntil([&] { return fleet.GetStatus().router.status.ok(); }, exec::Now() + seconds(20)));
  EXPECT_TRUE(Listed(url).empty());
  ASSERT_TRUE(fleet.Sync().status.ok());
  AwaitAllListed(fleet);
  const auto list = http::Send({.url = url + "/workers", .body = {}, .bearer = {}, .deadline = seconds(2)});
  ASSERT_TRUE(list.has_value());
  const auto workers = nlohmann::json::parse(list->body)["workers"];
  ASSERT_EQ(workers.size(), 2U);
  for (const auto& worker : workers) {
    EXPECT_EQ(worker["disable_health_check"], true) << worker.dump();
    EXPECT_EQ(worker["is_healthy"], true) << worker.dump();
  }
  EXPECT_TRUE(exec::WaitUntil([&] { return fleet.GetStatus().router.entries == 2; }, exec::Now() + seconds(5)));
  const auto answer = Generate(url);
  ASSERT_TRUE(answer.has_value()) << answer.status().ToString();
  EXPECT_EQ((*answer)["meta_info"]["weight_version"], "1") << answer->dump();
}

// RC-RTR-04: the controller is the only writer.
TEST_F(RealRouter, WhatSomebodyElseAddsIsGoneWithinTwoSeconds) {
  Fleet fleet({.policies = 1, .engines = 1, .tp_size = 1, .router = Options()});
  ASSERT_TRUE(fleet.Sync().status.ok());
  AwaitAllListed(fleet);
  const rpc::FleetReport status = fleet.GetStatus();
  const router::RouterClient by_hand(status.router.url, "");
  const std::string other_name = "http://localhost" + status.slots[0].engine_url.substr(strlen("http://127.0.0.1"));
  // Without labels of a life, and with those of the one that lives.
  for (const Incarnation& incarnation : {Incarnation(), status.slots[0].incarnation}) {
    ASSERT_TRUE(by_hand.Add({other_name, SlotIndex(0), incarnation, {}}, seconds(2)).ok());
    const auto is_listed = [&] {
      const auto workers = by_hand.List(seconds(2));
      return workers.has_value() && std::any_of(workers->begin(), workers->end(),
                                                [&](const router::Worker& worker) { return worker.url == other_name; });
    };
    ASSERT_TRUE(exec::WaitUntil(is_listed, exec::Now() + seconds(10)));
    const Instant seen = exec::Now();
    EXPECT_TRUE(exec::WaitUntil([&] { return !is_listed(); }, seen + seconds(2)));
    RecordProperty(incarnation.is_zero() ? "milliseconds_foreign" : "milliseconds_forged",
                   std::to_string((exec::Now() - seen) / milliseconds(1)));
    EXPECT_TRUE(ListsAll(status.router.url, fleet.GetStatus()));
  }
}

// RC-RTR-04: kill -9; it comes back without workers, on the same port.
TEST_F(RealRouter, ThatDiesIsStartedAgainAndToldOfEveryEngine) {
  Fleet fleet({.tp_size = 1, .router = Options()});
  ASSERT_TRUE(fleet.Sync().status.ok());
  AwaitAllListed(fleet);
  const rpc::RouterReport before = fleet.GetStatus().router;
  ASSERT_GT(before.pid, 0);
  ASSERT_EQ(kill(static_cast<pid_t>(before.pid), SIGKILL), 0);
  const Instant killed = exec::Now();
  ASSERT_TRUE(exec::WaitUntil(
      [&] {
        const rpc::RouterReport now = fleet.GetStatus().router;
        return now.pid != before.pid && now.status.ok();
      },
      killed + seconds(20)));
  const Instant back = exec::Now();
  EXPECT_EQ(fleet.GetStatus().router.url, before.url);
  AwaitAllListed(fleet, seconds(4));
  RecordProperty("milliseconds_until_back", std::to_string((back - killed) / milliseconds(1)));
  RecordProperty("milliseconds_until_listed", std::to_string((exec::Now() - back) / milliseconds(1)));
  EXPECT_TRUE(Generate(before.url).has_value());
  EXPECT_TRUE(fleet.Sync().status.ok());
}

TEST_F(RealRouter, ThatHangsIsEndedAndStartedAgain) {
  runtime::RouterOptions options = Options();
  options.silence = seconds(5);
  Fleet fleet({.policies = 1, .engines = 1, .tp_size = 1, .router = options});
  ASSERT_TRUE(fleet.Sync().status.ok());
  AwaitAllListed(fleet);
  const rpc::RouterReport before = fleet.GetStatus().router;
  ASSERT_EQ(kill(static_cast<pid_t>(before.pid), SIGSTOP), 0);
  EXPECT_TRUE(exec::WaitUntil([&] { return !fleet.GetStatus().router.status.ok(); }, exec::Now() + seconds(5)));
  EXPECT_TRUE(fleet.Sync().status.ok());  // nobody waits for it
  AwaitAllListed(fleet);
  EXPECT_TRUE(Gone(static_cast<int>(before.pid)));
  EXPECT_TRUE(Generate(before.url).has_value());
}

TEST_F(RealRouter, WithAKeyIsToldOfTheEnginesAndShowsTheKeyToNobody) {
  folder_.Write("key", "of-the-router\n");
  runtime::RouterOptions options = Options();
  options.command.api_key_file = folder_ / "key";
  options.api_key = "of-the-router";
  Fleet fleet({.policies = 1, .engines = 1, .tp_size = 1, .router = options});
  ASSERT_TRUE(fleet.Sync().status.ok());
  EXPECT_TRUE(exec::WaitUntil([&] { return fleet.GetStatus().router.entries == 1; }, exec::Now() + seconds(20)))
      << fleet.GetStatus().router.status.ToString();
  const rpc::RouterReport router = fleet.GetStatus().router;
  EXPECT_EQ(router::RouterClient(router.url, "").List(seconds(2)).status().code(), StatusCode::kPermissionDenied);
  std::ifstream command(StrCat("/proc/", router.pid, "/cmdline"));
  const std::string words{std::istreambuf_iterator<char>(command), {}};
  EXPECT_FALSE(words.empty());
  EXPECT_EQ(words.find("of-the-router"), std::string::npos) << words;
}

// RC-ROLE-07, RX-COMMIT-08, RC-REC-09: out with the dead; in only with what is published, under a port of its own.
TEST_F(RealRouter, ListsAReplacementOnlyAfterItsCatchUp) {
  Fleet fleet({.tp_size = 1, .use_fault_tolerance = true, .router = Options()});
  ASSERT_TRUE(fleet.Sync().status.ok());
  AwaitAllListed(fleet);
  const rpc::FleetReport before = fleet.GetStatus();
  Traffic traffic(before.router.url);
  ASSERT_EQ(kill(static_cast<pid_t>(before.slots[0].engine_pid), SIGKILL), 0);
  const Instant killed = exec::Now();
  const auto is_out = [&] {
    const auto listed = Listed(before.router.url);
    return !listed.empty() && !listed.contains(SlotIndex(0));
  };
  EXPECT_TRUE(exec::WaitUntil(is_out, killed + seconds(5)));
  RecordProperty("milliseconds_until_out", std::to_string((exec::Now() - killed) / milliseconds(1)));
  const rpc::SlotReport back = fleet.AwaitState(0, "serving", before.slots[0].incarnation);
  AwaitAllListed(fleet);
  RecordProperty("milliseconds_until_in", std::to_string((exec::Now() - killed) / milliseconds(1)));
  EXPECT_NE(back.engine_url, before.slots[0].engine_url);
  const int answers = traffic.answers();
  EXPECT_TRUE(exec::WaitUntil([&] { return traffic.answers() > answers + 4; }, exec::Now() + seconds(10)));
  traffic.Stop();
  EXPECT_EQ(traffic.versions(), std::set<std::string>{"1"});
}

// Settled C9: survivors stay registered while paused.
TEST_F(RealRouter, KeepsEveryEngineListedDuringARefit) {
  Fleet fleet({.tp_size = 1, .router = Options()});
  ASSERT_TRUE(fleet.Sync().status.ok());
  AwaitAllListed(fleet);
  const rpc::FleetReport status = fleet.GetStatus();
  std::atomic<bool> over = false;
  std::atomic<int> looks = 0;
  std::atomic<int> missing = 0;
  std::thread watcher([&] {
    while (!over) {
      missing += ListsAll(status.router.url, status) ? 0 : 1;
      ++looks;
    }
  });
  Traffic traffic(status.router.url);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(fleet.Sync().status.ok());
  }
  const Instant end = exec::Now() + seconds(2);
  EXPECT_TRUE(exec::WaitUntil([&] { return exec::Now() > end && looks > 10; }, exec::Now() + seconds(20)));
  over = true;
  watcher.join();
  traffic.Stop();
  EXPECT_EQ(missing, 0) << "of " << looks;
  for (const std::string& version : traffic.versions()) {
    EXPECT_TRUE((std::set<std::string>{"1", "2", "3", "4"}.contains(version))) << version;
  }
}

// RC-RTR-03: zero answers from a replacement before its first refit.
TEST_F(RealRouter, InProfileStrictNobodyReachesAReplacementBeforeItsRefit) {
  Fleet fleet({.tp_size = 1, .profile = sync::kStrict, .use_fault_tolerance = true, .router = Options()});
  ASSERT_TRUE(fleet.Sync().status.ok());
  AwaitAllListed(fleet);
  const rpc::FleetReport before = fleet.GetStatus();
  Traffic traffic(before.router.url);
  ASSERT_EQ(kill(static_cast<pid_t>(before.slots[0].engine_pid), SIGKILL), 0);
  fleet.AwaitState(0, "empty", before.slots[0].incarnation);
  const rpc::SyncReport report = fleet.Sync();
  ASSERT_TRUE(report.status.ok()) << Describe(report);
  AwaitAllListed(fleet);
  const int answers = traffic.answers();
  EXPECT_TRUE(exec::WaitUntil([&] { return traffic.answers() > answers + 4; }, exec::Now() + seconds(10)));
  traffic.Stop();
  EXPECT_EQ(traffic.versions(), (std::set<std::string>{"1", "2"}));
}

// ---- routers that are no good

runtime::RouterOptions AttachedTo(const std::string& url) {
  runtime::RouterOptions options;
  options.owner = runtime::RouterOwner::kSomebodyElse;
  options.command.port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  return options;
}

void ExpectRefitsAndRecovery(const runtime::RouterOptions& router) {
  Fleet fleet({.policies = 1, .engines = 2, .tp_size = 1, .use_fault_tolerance = true, .router = router});
  ASSERT_TRUE(fleet.Sync().status.ok());
  const rpc::SlotReport before = fleet.GetStatus().slots[0];
  ASSERT_EQ(kill(static_cast<pid_t>(before.engine_pid), SIGKILL), 0);
  EXPECT_EQ(fleet.AwaitState(0, "serving", before.incarnation).version, WeightVersion(1));
  const rpc::SyncReport report = fleet.Sync();
  EXPECT_TRUE(report.status.ok()) << Describe(report);
  EXPECT_EQ(report.version, WeightVersion(2));
}

// RC-RTR-01, RC-KILL-03.
TEST(BadRouter, ThatAcceptsAndNeverListsHoldsUpNothing) {
  http::ServerDouble server;
  server.Answer("*", http::Reply(202, "{}"));
  server.Answer("/workers", "GET", http::Reply(200, R"({"workers":[],"total":0})"));
  ExpectRefitsAndRecovery(AttachedTo(server.url()));
}

TEST(BadRouter, ThatNobodyStartedHoldsUpNothing) { ExpectRefitsAndRecovery(AttachedTo("http://127.0.0.1:1")); }

TEST(BadRouter, ThatHangsHoldsUpNothing) {
  http::ServerDouble server;
  server.Answer("*", {"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{\"wor", http::RawReply::Then::kHang});
  ExpectRefitsAndRecovery(AttachedTo(server.url()));
}

}  // namespace
}  // namespace refit::test
