// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "refit/exec/clock.h"
#include "refit/http/server_double.h"

namespace refit::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class HttpClientTest : public ::testing::Test {
 protected:
  Result<Response> Get(RawReply reply, Duration deadline = seconds(10)) {
    server_.Answer("*", std::move(reply));
    return Send({.url = server_.url() + "/path", .body = {}, .bearer = {}, .deadline = deadline});
  }
  ServerDouble server_;
};

TEST_F(HttpClientTest, AnyStatusIsACompleteAnswer) {  // S42
  for (const int status : {200, 400, 401, 404, 500, 503}) {
    const auto response = Get(Reply(status, "some words"));
    ASSERT_TRUE(response.has_value()) << response.status().ToString();
    EXPECT_EQ(response->status, status);
    EXPECT_EQ(response->body, "some words");
  }
}

TEST_F(HttpClientTest, ABodyMakesItAPostWithTheKeyAndWithoutExpect) {
  server_.Answer("*", Reply(200, "{}"));
  const std::string body(3 * kMiB, 'x');
  const auto response =
      Send({.url = server_.url() + "/update", .body = body, .bearer = "secret", .deadline = seconds(10)});
  ASSERT_TRUE(response.has_value()) << response.status().ToString();
  const SeenRequest seen = server_.last();
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.path, "/update");
  EXPECT_EQ(seen.body.size(), body.size());
  EXPECT_THAT(seen.head, HasSubstr("Authorization: Bearer secret"));
  EXPECT_THAT(seen.head, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(seen.head, Not(HasSubstr("Expect")));
}

TEST_F(HttpClientTest, AMethodOfItsOwnIsSentAsItIs) {
  server_.Answer("*", Reply(202, "{}"));
  const auto response = Send(
      {.url = server_.url() + "/workers/7", .body = {}, .bearer = {}, .deadline = seconds(10), .method = "DELETE"});
  ASSERT_TRUE(response.has_value()) << response.status().ToString();
  EXPECT_EQ(response->status, 202);
  EXPECT_EQ(server_.last().method, "DELETE");
  EXPECT_EQ(server_.last().path, "/workers/7");
}

TEST_F(HttpClientTest, EveryCallHasAConnectionOfItsOwn) {
  ASSERT_TRUE(Get(Reply(200, "a")).has_value());
  ASSERT_TRUE(Get(Reply(200, "b")).has_value());
  EXPECT_EQ(server_.connections(), 2);
  EXPECT_EQ(server_.last().method, "GET");
}

TEST_F(HttpClientTest, ARedirectIsAnAnswerAndIsNotFollowed) {
  const auto response = Get({"HTTP/1.1 307 Elsewhere\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"});
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->status, 307);
  EXPECT_EQ(server_.seen().size(), 1U);
}

TEST_F(HttpClientTest, TheEnvironmentsProxyIsIgnored) {
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  EXPECT_TRUE(Get(Reply(200, "a")).has_value());
  unsetenv("http_proxy");
}

// RC-RPC-04.
TEST_F(HttpClientTest, SilenceEndsAtTheDeadline) {
  for (const char* start : {"", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"}) {
    const Instant before = exec::Now();
    const auto response = Get({start, RawReply::Then::kHang}, milliseconds(100));
    ASSERT_FALSE(response.has_value());
    EXPECT_EQ(response.status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_LT(exec::Now() - before, seconds(1));
  }
}

TEST_F(HttpClientTest, AServerThatDripsEndsAtTheDeadline) {  // S43
  const Instant before = exec::Now();
  const auto response =
      Get({"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n{", RawReply::Then::kDrip}, milliseconds(150));
  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(exec::Now() - before, seconds(1));
}

TEST_F(HttpClientTest, NoTimeLeftIsNotForEver) {
  const auto response = Get({"", RawReply::Then::kHang}, Duration::zero());
  EXPECT_EQ(response.status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(HttpClientTest, AnEchoOfMegabytesIsCutOffAndNoAnswer) {  // S43
  const auto response = Get(Reply(400, std::string(8 * kMiB, 'x')));
  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(response.status().message(), HasSubstr("65536"));
}

TEST_F(HttpClientTest, HeadersWithoutEndAreCutOff) {
  const std::string line = "X-Filler: " + std::string(1000, 'x') + "\r\n";
  std::string head = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 200; ++i) {
    head += line;
  }
  EXPECT_FALSE(Get({head + "\r\n"}).has_value());
}

TEST_F(HttpClientTest, WhatIsNoWholeHttpAnswerIsNone) {  // S43
  for (const char* bytes : {
           "",                                                                            // closed at once
           "HTTP/1.1 200 OK\r\nContent-Le",                                               // closed in the headers
           "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"success\": true}",            // closed in mid-body
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",                // closed in a chunk
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",            // no last chunk
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",  // no chunk size
           "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}",                           // no number
           "HTTP/1.1 200 OK\r\n\r\nCache flushed",                                        // no length
           "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n",       // closed in the last headers
           "SSH-2.0-OpenSSH_9.2\r\n",                                                     // another protocol
       }) {
    const auto response = Get({bytes});
    EXPECT_FALSE(response.has_value()) << bytes;
    EXPECT_EQ(response.status().code(), StatusCode::kUnavailable) << bytes << response.status().ToString();
  }
}

TEST_F(HttpClientTest, NobodyListeningIsNamed) {
  const auto response = Send({.url = "http://127.0.0.1:1/x", .body = {}, .bearer = {}, .deadline = seconds(5)});
  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(response.status().message(), HasSubstr("http://127.0.0.1:1/x"));
}

}  // namespace
}  // namespace refit::http
