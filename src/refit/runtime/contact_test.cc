// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// RX-JRNL-05: members and clients find a successor by themselves.

#include "refit/runtime/contact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "refit/exec/clock.h"
#include "refit/store/store.h"
#include "tests/support/temp_folder.h"

namespace refit::runtime {
namespace {

using std::chrono::seconds;

// A controller process as far as its callers see it.
class FakeController final : public rpc::ControllerHandler {
 public:
  FakeController(const std::string& folder, Term before) : term_(before.Next()) {
    const auto store = store::Store::Open(folder);
    EXPECT_TRUE((*store)->TakeTerm(before, {.pid = 1}, RunId{{1, 1}}).has_value());
    server_ = *rpc::ServeController("127.0.0.1:0", *this);
    EXPECT_TRUE((*store)->Announce(term_, server_->address()).ok());
  }

  Result<rpc::Membership> RegisterAgent(const rpc::AgentRegistration&) override { return NotFound("no such slot"); }
  Result<rpc::Membership> RegisterPolicy(const rpc::PolicyRegistration&) override {
    ++registrations;
    return rpc::Membership{RunId{{1, 1}}, Term(99), "resilient"};  // nobody believes a controller's word
  }
  void AgentGone(const rpc::AgentEnd&) override {}
  rpc::SyncReport Sync(const rpc::SyncRequest& request, const rpc::ProgressSink&) override {
    requests.With([&](auto& ids) { ids.push_back(request.request_id); });
    rpc::SyncReport report;
    report.request_id = request.request_id;
    report.status = answer;
    return report;
  }
  rpc::FleetReport GetStatus() override { return {}; }
  rpc::VerifyReport Verify(const rpc::VerifyRequest&) override { return {}; }
  Status Shutdown(Duration) override { return {}; }
  Status ActOnSlot(const rpc::SlotRequest&) override { return {}; }
  Result<control::History> GetHistory() override { return control::History{}; }

  std::atomic<int> registrations = 0;
  exec::Watched<std::vector<std::string>> requests;
  Status answer;

 private:
  const Term term_;
  std::unique_ptr<rpc::Server> server_;
};

struct Seen {
  std::atomic<int> made = 0;
  std::atomic<int> lost = 0;
  std::atomic<std::uint32_t> authority = 0;
};

ContactOptions Options(const std::string& folder, Seen& seen) {
  return {.place = {.address = {}, .state_directory = folder},
          .register_at = [](rpc::ControllerClient& controller,
                            Duration deadline) { return controller.RegisterPolicy({}, deadline); },
          .on_made =
              [&seen](const Contacted& contacted) {
                seen.authority = contacted.authority.value();
                ++seen.made;
              },
          .on_lost = [&seen] { ++seen.lost; }};
}

// RX-ID-03: and the term is the authority's.
TEST(Contact, FollowsTheTermToWhereItIsServed) {
  const test::TempFolder folder;
  Seen seen;
  auto first = std::make_unique<FakeController>(folder / "state", Term(0));
  Contact contact(Options(folder / "state", seen));
  const auto contacted = contact.Register(seconds(10));
  ASSERT_TRUE(contacted.has_value()) << contacted.status().ToString();
  EXPECT_EQ(contacted->membership.term, Term(1));
  const bool is_known_still =
      exec::WaitUntil([&] { return first->registrations > 2; }, exec::Now() + seconds(10));  // and again, and again
  EXPECT_TRUE(is_known_still);
  EXPECT_EQ(seen.made, 1);

  first.reset();
  ASSERT_TRUE(exec::WaitUntil([&] { return seen.lost == 1; }, exec::Now() + seconds(10)));
  FakeController second(folder / "state", Term(1));
  const Instant began = exec::Now();
  ASSERT_TRUE(exec::WaitUntil([&] { return second.registrations > 0; }, exec::Now() + seconds(10)));
  EXPECT_LT(exec::Now() - began, seconds(2));
  ASSERT_TRUE(exec::WaitUntil([&] { return seen.made == 2; }, exec::Now() + seconds(10)));
  EXPECT_EQ(seen.authority, 2U);
}

TEST(Contact, ARefusalIsToldAtOnceAndNobodyThereByTheDeadline) {
  const test::TempFolder folder;
  Seen seen;
  ContactOptions options = Options(folder / "state", seen);
  options.register_at = [](rpc::ControllerClient& controller, Duration deadline) {
    return controller.RegisterAgent({}, deadline);
  };
  Contact contact(options);
  EXPECT_EQ(contact.Register(std::chrono::milliseconds(300)).status().code(), StatusCode::kUnavailable);
  const FakeController controller(folder / "state", Term(0));
  EXPECT_EQ(contact.Register(seconds(60)).status().code(), StatusCode::kNotFound);
}

// RX-ONCE-01: a caller whose controller does not know what became of the request asks its successor for the same one.
TEST(SyncWithSuccessors, TheSuccessorIsAskedForTheSameRequest) {
  const test::TempFolder folder;
  FakeController first(folder / "state", Term(0));
  first.answer = Aborted("IN_DOUBT: the journal is in doubt");
  exec::Watched<bool> answered;
  std::thread successor([&] {
    const auto asked = [](const auto& ids) { return !ids.empty(); };
    EXPECT_TRUE(first.requests.Wait(asked, exec::Now() + seconds(10)));
    FakeController second(folder / "state", Term(1));
    EXPECT_TRUE(second.requests.Wait(asked, exec::Now() + seconds(10)));
    second.requests.With([](const auto& ids) { EXPECT_EQ(ids, std::vector<std::string>{"r1"}); });
    answered.Wait([](bool done) { return done; }, exec::Now() + seconds(20));
  });
  const auto report =
      SyncWithSuccessors({.address = {}, .state_directory = folder / "state"},
                         {.request_id = "r1", .source = {}, .budget = seconds(30)}, [](const rpc::SyncProgress&) {});
  EXPECT_TRUE(report.has_value() && report->status.ok()) << report.status().ToString();
  answered.With([](bool& done) { done = true; });
  successor.join();
}

TEST(SyncWithSuccessors, NobodyAtAFixedAddressIsToldAtOnce) {
  const Instant began = exec::Now();
  const auto report =
      SyncWithSuccessors({.address = "127.0.0.1:1"}, {.request_id = "r1", .source = {}, .budget = seconds(60)},
                         [](const rpc::SyncProgress&) {});
  EXPECT_EQ(report.status().code(), StatusCode::kUnavailable);
  EXPECT_LT(exec::Now() - began, seconds(30));
}

}  // namespace
}  // namespace refit::runtime
