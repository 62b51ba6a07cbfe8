// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/router_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/exec/mailbox.h"
#include "refit/http/server_double.h"
#include "tests/support/temp_folder.h"

namespace refit::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr Incarnation kLife{{0xab, 0xcd}};
constexpr std::string_view kAddress = "http://127.0.0.1:7";

std::string ListOf(std::string_view url) {
  return StrCat(R"({"workers":[{"id":"a1","url":")", url, R"(","metadata":{"slot":"3",)",
                R"("incarnation":"00000000000000ab00000000000000cd"}},{"id":"b2","url":"u"}],"total":2})");
}

class RouterDeskTest : public testing::Test {
 protected:
  void Open(RouterOwner owner = RouterOwner::kSomebodyElse) {
    RouterOptions options;
    options.owner = owner;
    options.command.python = folder_ / "no-python";
    options.command.port = static_cast<std::uint16_t>(std::stoi(server_.url().substr(server_.url().rfind(':') + 1)));
    options.log_path = folder_ / "router.log";
    options.worker_keys = {{SlotIndex(3), "of-the-engine"}};
    const auto find_url = [](SlotIndex slot, Incarnation life) {
      return std::string(slot == SlotIndex(3) && life == kLife ? kAddress : "");
    };
    auto desk = RouterDesk::Open(
        std::move(options), folder_ / "ports",
        {find_url, [this](control::ControllerEvent event) { static_cast<void>(events_.Push(std::move(event))); }});
    ASSERT_TRUE(desk.has_value()) << desk.status().ToString();
    desk_ = *std::move(desk);
  }
  // Carries it out on a thread of the desk's; the answer.
  control::RouterAnswered Call(fleet::RouterAction action, Duration deadline = seconds(5)) {
    desk_->Carry({++call_, std::move(action), deadline});
    return NextAnswer();
  }
  control::RouterAnswered NextAnswer() {
    const auto event = events_.Pop(exec::Now() + seconds(20));
    const auto* answer = event.has_value() ? std::get_if<control::RouterAnswered>(&*event) : nullptr;
    EXPECT_NE(answer, nullptr) << "a call was not answered";
    return answer == nullptr ? control::RouterAnswered{} : *answer;
  }

  test::TempFolder folder_;
  http::ServerDouble server_;
  exec::Mailbox<control::ControllerEvent> events_{64};
  std::uint64_t call_ = 0;
  std::unique_ptr<RouterDesk> desk_;
};

TEST_F(RouterDeskTest, AListTellsOursFromThoseOfOthers) {
  Open();
  server_.Answer("/workers", http::Reply(200, ListOf(kAddress)));
  const control::RouterAnswered answer = Call(fleet::RouterList{});
  ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
  EXPECT_EQ(answer.call, 1U);
  EXPECT_EQ(answer.entries,
            (std::vector<fleet::RouterEntry>{{"a1", SlotIndex(3), kLife}, {"b2", SlotIndex(), Incarnation()}}));
  EXPECT_TRUE(desk_->report().status.ok());
  EXPECT_EQ(desk_->report().entries, 2U);
  EXPECT_EQ(desk_->report().url, server_.url());
}

// RC-RTR-04: an entry whose URL is not that of the life is not of that life.
TEST_F(RouterDeskTest, AnEntryWithOurLabelsAndAnotherAddressIsSomebodyElses) {
  Open();
  server_.Answer("/workers", http::Reply(200, ListOf("http://localhost:7")));
  const control::RouterAnswered answer = Call(fleet::RouterList{});
  ASSERT_EQ(answer.entries.size(), 2U);
  EXPECT_EQ(answer.entries[0], (fleet::RouterEntry{"a1", SlotIndex(), Incarnation()}));
}

// A successor that has not heard that agent yet goes by the labels.
TEST_F(RouterDeskTest, AnEntryOfALifeThatNobodyHasRegisteredKeepsItsLabels) {
  Open();
  const std::string other = R"({"workers":[{"id":"a1","url":"u","metadata":{"slot":"4",
      "incarnation":"00000000000000ab00000000000000cd"}}],"total":1})";
  server_.Answer("/workers", http::Reply(200, other));
  EXPECT_EQ(Call(fleet::RouterList{}).entries, (std::vector<fleet::RouterEntry>{{"a1", SlotIndex(4), kLife}}));
}

TEST_F(RouterDeskTest, AnAddNamesTheAddressThatTheLifeRegisteredAndItsKey) {
  Open();
  server_.Answer("/workers", http::Reply(202, "{}"));
  EXPECT_TRUE(Call(fleet::RouterAdd{SlotIndex(3), kLife}).status.ok());
  EXPECT_THAT(server_.last().body, HasSubstr(StrCat('"', kAddress, '"')));
  EXPECT_THAT(server_.last().body, HasSubstr("of-the-engine"));
}

TEST_F(RouterDeskTest, ALifeWithoutAnAddressIsNotAdded) {
  Open();
  server_.Answer("/workers", http::Reply(202, "{}"));
  EXPECT_EQ(Call(fleet::RouterAdd{SlotIndex(4), kLife}).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Call(fleet::RouterAdd{SlotIndex(3), Incarnation{{1, 2}}}).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(server_.seen().empty());
}

TEST_F(RouterDeskTest, ADeleteGoesByTheId) {
  Open();
  server_.Answer("/workers/a1", http::Reply(202, "{}"));
  EXPECT_TRUE(Call(fleet::RouterDelete{"a1"}).status.ok());
  EXPECT_EQ(server_.last().method, "DELETE");
}

TEST_F(RouterDeskTest, EveryCallIsAnsweredByARouterThatHangsAsWell) {
  Open();
  server_.Answer("*", {"", http::RawReply::Then::kHang});
  for (const fleet::RouterAction& action :
       {fleet::RouterAction(fleet::RouterList{}), fleet::RouterAction(fleet::RouterAdd{SlotIndex(3), kLife}),
        fleet::RouterAction(fleet::RouterDelete{"a1"})}) {
    EXPECT_EQ(Call(action, milliseconds(50)).status.code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(desk_->report().status.code(), StatusCode::kDeadlineExceeded);
}

// Mutant RC-RTR-04/late-add: it would land when nobody reckons with it.
TEST_F(RouterDeskTest, ACallThatNobodyWaitsForAnyMoreIsNotSent) {
  Open();
  server_.Answer("/workers", "GET", {"", http::RawReply::Then::kHang});
  server_.Answer("/workers", "POST", http::Reply(202, "{}"));
  const Instant before = exec::Now();
  desk_->Carry({1, fleet::RouterList{}, milliseconds(200)});
  desk_->Carry({2, fleet::RouterAdd{SlotIndex(3), kLife}, milliseconds(100)});
  EXPECT_LT(exec::Now() - before, milliseconds(100)) << "the loop was held up";
  EXPECT_EQ(NextAnswer().call, 1U);
  const control::RouterAnswered late = NextAnswer();
  EXPECT_EQ(late.call, 2U);
  EXPECT_EQ(late.status.code(), StatusCode::kDeadlineExceeded);
  for (const http::SeenRequest& seen : server_.seen()) {
    EXPECT_EQ(seen.method, "GET");
  }
}

// What listens there is not ours: it is neither asked nor told anything.
TEST_F(RouterDeskTest, WhoeverHasThePortOfOurRouterIsLeftAlone) {
  server_.Answer("*", http::Reply(200, ListOf(kAddress)));
  Open(RouterOwner::kController);
  const bool said = exec::WaitUntil(
      [this] { return Call(fleet::RouterList{}).status.message().find("is taken") != std::string::npos; },
      exec::Now() + seconds(10));
  EXPECT_TRUE(said) << desk_->report().status.ToString();
  EXPECT_THAT(desk_->report().status.remedy(), HasSubstr("sglang_router_port"));
  EXPECT_EQ(desk_->report().pid, 0);
  EXPECT_TRUE(server_.seen().empty());
}

}  // namespace
}  // namespace refit::runtime
