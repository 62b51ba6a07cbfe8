// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/router/worker_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refit/base/str.h"

namespace refit::router {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kId = "c797ab4a-a33e-4be6-a7fc-46f08c4569d0";
constexpr std::string_view kLabels = R"("slot":"3","incarnation":"00000000000000ab00000000000000cd")";

std::string Entry(std::string_view id, std::string_view url, std::string_view metadata) {
  return StrCat(R"({"id":")", id, R"(","url":")", url, R"(","is_healthy":true,"load":0,"metadata":{)", metadata,
                R"(},"disable_health_check":true})");
}
std::string List(const std::string& entries, std::string_view total) {
  return StrCat(R"({"workers":[)", entries, R"(],"total":)", total, R"(,"stats":{"regular_count":1}})");
}
std::string One(std::string_view metadata) { return List(Entry(kId, "http://127.0.0.1:1", metadata), "1"); }

TEST(WorkerList, AnEntryOfOursIsKnownByItsLabels) {
  const auto workers = ParseWorkerList(One(StrCat(R"("tp_size":"1","model_type":"llama",)", kLabels)));
  ASSERT_TRUE(workers.has_value()) << workers.status().ToString();
  ASSERT_EQ(workers->size(), 1U);
  EXPECT_EQ(workers->front().id, kId);
  EXPECT_EQ(workers->front().url, "http://127.0.0.1:1");
  EXPECT_EQ(workers->front().slot, SlotIndex(3));
  EXPECT_EQ(workers->front().incarnation, (Incarnation{{0xab, 0xcd}}));
}

TEST(WorkerList, NobodyIsListedWhereTheRouterSaysSo) {
  const auto workers = ParseWorkerList(List("", "0"));
  ASSERT_TRUE(workers.has_value());
  EXPECT_TRUE(workers->empty());
}

// RC-RTR-04: what somebody else has added is listed, so that it can be deleted.
TEST(WorkerList, LabelsThatAreNotOursMakeAForeignEntry) {
  for (const char* metadata : {
           "",
           R"("slot":"3")",
           R"("incarnation":"00000000000000ab00000000000000cd")",
           R"("slot":3,"incarnation":"00000000000000ab00000000000000cd")",
           R"("slot":"-3","incarnation":"00000000000000ab00000000000000cd")",
           R"("slot":"4294967296","incarnation":"00000000000000ab00000000000000cd")",
           R"("slot":"3","incarnation":"ab")",
           R"("slot":"3","incarnation":"00000000000000ab00000000000000cd0")",
           R"("slot":"3","incarnation":"0x000000000000ab00000000000000cd")",
           R"("slot":"3","incarnation":null)",
       }) {
    const auto workers = ParseWorkerList(One(metadata));
    ASSERT_TRUE(workers.has_value()) << metadata << workers.status().ToString();
    EXPECT_TRUE(workers->front().incarnation.is_zero()) << metadata;
  }
  const auto bare = ParseWorkerList(List(StrCat(R"({"id":")", kId, R"(","url":"u"})"), "1"));
  ASSERT_TRUE(bare.has_value());
  EXPECT_TRUE(bare->front().incarnation.is_zero());
}

// Whoever is not on a list counts as out of traffic: half an answer must not read as a short list.
TEST(WorkerList, WhatCannotBeBelievedIsAnErrorAndNeverAnEmptyList) {
  const std::string entry = Entry(kId, "http://127.0.0.1:1", kLabels);
  const std::vector<std::string> answers = {
      "",
      "null",
      "[]",
      "{}",
      "OK",
      R"({"workers":[]})",
      R"({"total":0})",
      R"({"workers":{},"total":0})",
      R"({"workers":null,"total":0})",
      R"({"workers":[],"total":"0"})",
      R"({"workers":[],"total":-1})",
      R"({"workers":[],"total":0.0})",
      R"({"workers":[],"total":0)",
      R"({"urls":[],"total":0})",
      List("", "1"),
      List(entry, "0"),
      List(entry, "2"),
      List("null", "1"),
      List("[]", "1"),
      List(StrCat(entry, ",", entry), "2"),
      List(R"({"url":"u"})", "1"),
      List(R"({"id":7,"url":"u"})", "1"),
      List(StrCat(R"({"id":")", kId, R"("})"), "1"),
      List(Entry("", "u", ""), "1"),
      List(Entry(kId, "", ""), "1"),
      List(Entry("../flush_cache", "u", ""), "1"),
      List(Entry("http://127.0.0.1:1", "u", ""), "1"),
      List(Entry(std::string(65, 'a'), "u", ""), "1"),
      List(Entry(kId, "\xff", ""), "1"),
  };
  for (const std::string& answer : answers) {
    const auto workers = ParseWorkerList(answer);
    ASSERT_FALSE(workers.has_value()) << answer;
    EXPECT_EQ(workers.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(workers.status().message(), HasSubstr("cannot be believed"));
    EXPECT_FALSE(workers.status().remedy().empty());
  }
}

}  // namespace
}  // namespace refit::router
