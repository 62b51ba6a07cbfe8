// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/router/router_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "refit/base/bytes.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/http/server_double.h"

namespace refit::router {
namespace {

using http::RawReply;
using http::Reply;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Incarnation kLife{{0xab, 0xcd}};
constexpr std::string_view kEmpty = R"({"workers":[],"total":0})";

class RouterClientTest : public ::testing::Test {
 protected:
  Status Add(RawReply reply, Duration deadline = seconds(5)) {
    server_.Answer("/workers", std::move(reply));
    return client_.Add({"http://127.0.0.1:7", SlotIndex(3), kLife, {}}, deadline);
  }
  Status Delete(RawReply reply, Duration deadline = seconds(5)) {
    server_.Answer("*", std::move(reply));
    return client_.Delete("c797ab4a-a33e", deadline);
  }
  Result<std::vector<Worker>> List(RawReply reply, Duration deadline = seconds(5)) {
    server_.Answer("/workers", std::move(reply));
    return client_.List(deadline);
  }
  http::ServerDouble server_;
  RouterClient client_{server_.url(), ""};
};

TEST_F(RouterClientTest, AListIsRead) {
  const auto workers = List(Reply(200, R"({"workers":[{"id":"a1","url":"http://127.0.0.1:7","metadata":{"slot":"3",
      "incarnation":"00000000000000ab00000000000000cd"}}],"total":1})"));
  ASSERT_TRUE(workers.has_value()) << workers.status().ToString();
  ASSERT_EQ(workers->size(), 1U);
  EXPECT_EQ(workers->front().incarnation, kLife);
  EXPECT_EQ(server_.last().method, "GET");
  EXPECT_EQ(server_.last().path, "/workers");
  EXPECT_THAT(server_.last().head, Not(HasSubstr("Authorization")));
}

// RC-RTR-04, settled C9: labels by which a successor knows it, and no health check but ours.
TEST_F(RouterClientTest, AnAddNamesTheLifeAndSwitchesTheRoutersHealthCheckOff) {
  EXPECT_TRUE(Add(Reply(202, R"({"status":"accepted","worker_id":"a1"})")).ok());
  EXPECT_EQ(server_.last().method, "POST");
  const auto body = nlohmann::json::parse(server_.last().body);
  const auto wanted = nlohmann::json::parse(R"({"url":"http://127.0.0.1:7","disable_health_check":true,
      "labels":{"slot":"3","incarnation":"00000000000000ab00000000000000cd"}})");
  EXPECT_EQ(body, wanted);
}

TEST_F(RouterClientTest, TheEnginesKeyGoesIntoTheEntryAndTheRoutersIntoTheHeader) {
  server_.Answer("/workers", Reply(202, "{}"));
  const RouterClient client(server_.url(), "of-the-router");
  EXPECT_TRUE(client.Add({"http://127.0.0.1:7", SlotIndex(3), kLife, "of-the-engine"}, seconds(5)).ok());
  EXPECT_EQ(nlohmann::json::parse(server_.last().body)["api_key"], "of-the-engine");
  EXPECT_THAT(server_.last().head, HasSubstr("Authorization: Bearer of-the-router"));
  EXPECT_THAT(server_.last().head, Not(HasSubstr("of-the-engine")));
}

TEST_F(RouterClientTest, AnEntryIsDeletedByItsId) {
  EXPECT_TRUE(Delete(Reply(202, R"({"status":"accepted"})")).ok());
  EXPECT_EQ(server_.last().method, "DELETE");
  EXPECT_EQ(server_.last().path, "/workers/c797ab4a-a33e");
}

// RC-RTR-02.
TEST_F(RouterClientTest, AnEntryThatIsNotThereIsDeleted) {
  EXPECT_TRUE(Delete(Reply(404, R"({"code":"WORKER_NOT_FOUND"})")).ok());
}

TEST_F(RouterClientTest, EveryRefusalIsAnErrorThatNamesTheCallAndTheAnswer) {
  struct Case {
    int status;
    StatusCode code;
  };
  for (const Case& wanted : {Case{400, StatusCode::kInvalidArgument}, Case{422, StatusCode::kInvalidArgument},
                             Case{401, StatusCode::kPermissionDenied}, Case{500, StatusCode::kUnavailable},
                             Case{503, StatusCode::kUnavailable}, Case{302, StatusCode::kUnavailable}}) {
    const RawReply reply = Reply(wanted.status, "words\nof the router");
    const Status added = Add(reply);
    EXPECT_EQ(added.code(), wanted.code) << added.ToString();
    EXPECT_THAT(added.message(), HasSubstr(StrCat("POST /workers of http://127.0.0.1:7 answered ", wanted.status)));
    EXPECT_THAT(added.message(), Not(HasSubstr("\n")));
    EXPECT_EQ(Delete(reply).code(), wanted.code);
    EXPECT_EQ(List(reply).status().code(), wanted.code);
  }
  EXPECT_THAT(Add(Reply(401, "")).remedy(), HasSubstr("api_key_file"));
  EXPECT_EQ(Add(Reply(404, "")).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(List(Reply(404, kEmpty)).has_value());
}

TEST_F(RouterClientTest, ARedirectIsNotFollowed) {
  EXPECT_FALSE(List({"HTTP/1.1 307 Elsewhere\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"}).has_value());
  EXPECT_EQ(server_.seen().size(), 1U);
}

TEST_F(RouterClientTest, AnAnswerThatIsCutOffIsNoList) {
  for (const char* bytes : {
           "",
           "HTTP/1.1 200 OK\r\nContent-Length: 80\r\n\r\n{\"workers\":[],\"total\":0}",   // closed in mid-body
           "HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{\"workers\":[],\"total\":0",    // a byte short
           "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"workers\":[],\"total\":0}",   // the length is wrong
           "HTTP/1.1 200 OK\r\n\r\n{\"workers\":[],\"total\":0}",                         // it has none
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{\"workers\":[]",  // closed in a chunk
       }) {
    EXPECT_FALSE(List({bytes}).has_value()) << bytes;
  }
}

// Mutant RC-RTR-04/what-is-no-list-is-empty: everybody would count as out of traffic.
TEST_F(RouterClientTest, AnAnswerThatIsNoListIsNoEmptyList) {
  for (const char* body : {"", "{}", "null", R"({"workers":[],"total":1})", "<html>"}) {
    EXPECT_EQ(List(Reply(200, body)).status().code(), StatusCode::kDataLoss) << body;
  }
}

TEST_F(RouterClientTest, ARouterThatHangsOrDripsEndsAtTheDeadline) {
  const RawReply replies[] = {{"", RawReply::Then::kHang},
                              {"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{\"wor", RawReply::Then::kHang},
                              {"HTTP/1.1 202 OK\r\nContent-Length: 60000\r\n\r\n{", RawReply::Then::kDrip}};
  for (const RawReply& reply : replies) {
    const Instant before = exec::Now();
    EXPECT_EQ(List(reply, milliseconds(50)).status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Add(reply, milliseconds(50)).code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Delete(reply, milliseconds(50)).code(), StatusCode::kDeadlineExceeded);
    EXPECT_LT(exec::Now() - before, seconds(2));
  }
}

TEST_F(RouterClientTest, AListWithoutEndIsCutOff) {
  EXPECT_EQ(List(Reply(200, std::string(5 * kMiB, ' '))).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace refit::router
