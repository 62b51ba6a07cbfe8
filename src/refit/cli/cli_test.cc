// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "refit/cli/json_report.h"
#include "refit/cli/output.h"
#include "refit/cli/report_text.h"

namespace refit::cli {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

rpc::SyncReport TwoEngines() {
  rpc::SyncReport report;
  report.version = WeightVersion(3);
  report.committed = true;
  report.published = {.tensors = 10, .loads = 2, .bytes = 1'000'000'000};
  report.seconds = 2;
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    rpc::EngineReport engine;
    engine.slot = SlotIndex(slot);
    engine.serving = true;
    engine.residue = sync::Residue::Old(WeightVersion(3));
    engine.totals = {.tensors = 30, .loads = 2, .bytes = 3'000'000'000, .staged = {}, .installing = {}};
    engine.stall_seconds = 0.5 + slot;
    report.engines.push_back(engine);
  }
  return report;
}

TEST(Json, CountsBytesOnceAndDeliveredOverRanks) {  // settled D11
  const Json object = Json::parse(SyncAsJson(TwoEngines()));
  EXPECT_EQ(object["bytes"], 1'000'000'000);
  EXPECT_EQ(object["tensors"], 10);
  EXPECT_EQ(object["bytes_delivered"], 6'000'000'000);
  EXPECT_DOUBLE_EQ(object["gbps"].get<double>(), 3.0);
  // RC-SYNC-06: dashboards look it up by this name.
  EXPECT_EQ(object["timers"], Json({{"prepare_for_generation/transfer_and_update_weights", 2.0}}));
  EXPECT_EQ(object["stall_seconds"], Json({0.5, 1.5}));
  EXPECT_EQ(object["version"], 3);
  EXPECT_EQ(object["engines"][1]["error"], nullptr);
}

TEST(Json, HasOneErrorObjectWithResidues) {  // RC-OBS-05
  const Json object = Json::parse(ErrorAsJson(Unavailable("engine \xff died", "start it"), {{1, "mixed(version 3)"}}));
  EXPECT_EQ(object.size(), 1U);
  EXPECT_EQ(object["error"]["code"], "UNAVAILABLE");
  EXPECT_EQ(object["error"]["remedy"], "start it");
  EXPECT_EQ(object["error"]["residues"][0]["engine"], 1);
  EXPECT_EQ(object["error"]["residues"][0]["residue"], "mixed(version 3)");
  EXPECT_EQ(object["error"].size(), 4U);
}

TEST(Json, OfEveryReportIsAnObject) {  // RC-OBS-05
  EXPECT_TRUE(Json::parse(StatusAsJson({})).is_object());
  EXPECT_TRUE(Json::parse(VerifyAsJson({})).is_object());
  EXPECT_TRUE(Json::parse(DoctorAsJson({})).is_object());
  EXPECT_TRUE(Json::parse(DemoAsJson({})).is_object());
  EXPECT_TRUE(Json::parse(SchemaAsJson()).is_object());
  EXPECT_TRUE(Json::parse(ReadyAsJson({"agent", "127.0.0.1:1", "http://127.0.0.1:2"})).is_object());
  const auto job = config::ParseJob("policies: [{rank: 0, source: /m}]\nengines: [{slot: 0}]\n");
  ASSERT_TRUE(job.has_value());
  const Json resolved = Json::parse(ConfigAsJson(*job))["config"];
  EXPECT_EQ(resolved["engines"][0]["tp"], 1);
  EXPECT_EQ(resolved["generation"]["use_fault_tolerance"], false);
}

TEST(Text, SaysErrorsOnOneLine) {
  EXPECT_EQ(ErrorAsText(NotFound("no model\nin x", "fetch it")), "refit: no model in x (fetch it)");
  EXPECT_EQ(ErrorAsText(NotFound("no model")), "refit: no model");
}

TEST(Text, NamesEnginesThatASyncLeftWithSomethingElse) {
  rpc::SyncReport report = TwoEngines();
  report.engines[1].serving = false;
  report.engines[1].status = Aborted("refused");
  report.engines[1].residue = sync::Residue::Mixed(WeightVersion(3), {});
  const auto lines = ResiduesOf(report);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].engine, 1U);
  EXPECT_THAT(SyncAsText(report), HasSubstr("mixed(version 3)"));
}

TEST(Text, StatusSaysTheStateOfEverySlot) {
  rpc::FleetReport report;
  report.slots.resize(2);
  report.slots[0].state = "empty";
  report.slots[1].slot = SlotIndex(1);
  report.slots[1].incarnation = Incarnation{{1, 1}};
  report.slots[1].state = "paused";
  EXPECT_THAT(StatusAsText(report), HasSubstr("0         -  empty"));
  EXPECT_THAT(StatusAsText(report), HasSubstr("1  00000000  paused"));
  EXPECT_EQ(Json::parse(StatusAsJson(report))["engines"][1]["state"], "paused");
}

TEST(Text, StatusShowsHowFarATransferIsAndHowFast) {
  rpc::FleetReport report;
  report.transfer_seconds = 2;
  report.slots.resize(1);
  report.slots[0].incarnation = Incarnation{{1, 1}};
  report.slots[0].state = "updating";
  report.slots[0].service = "draining";
  report.slots[0].doing = "transfer";
  report.slots[0].bytes_total = 8'000'000'000;
  report.slots[0].bytes_delivered = 6'000'000'000;
  EXPECT_THAT(StatusAsText(report), HasSubstr("transfer  ######--  75 %  3.00"));
  EXPECT_THAT(StatusAsText(report, observe::Glyphs::kUnicode), HasSubstr("██████░░  75 %"));
  EXPECT_THAT(StatusAsText(report), HasSubstr("updating, draining"));
  const std::string line = StatusAsJson(report, Lines::kOne);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_DOUBLE_EQ(Json::parse(line)["engines"][0]["gbps"].get<double>(), 3.0);
}

TEST(Text, TheHistorySaysWhatBecameOfEachRequest) {
  control::History history{RunId{{0x0123456789abcdef, 1}}, {}};
  history.entries.push_back({.request_id = "step-1",
                             .version = WeightVersion(1),
                             .attempts = 1,
                             .began_at = 1'700'000'000'000,
                             .ended_at = 1'700'000'001'500,
                             .committed = true,
                             .status = OkStatus(),
                             .members = {SlotIndex(0), SlotIndex(2)},
                             .excluded = {{SlotIndex(1), "it died"}}});
  history.entries.push_back({.request_id = "step-2", .status = Unavailable("no engine")});
  const std::string text = HistoryAsText(history);
  EXPECT_THAT(text, HasSubstr("run 01234567, 2 requests"));
  EXPECT_THAT(text, HasSubstr("2023-11-14T22:13:20.000Z"));
  EXPECT_THAT(text, HasSubstr("1.500 s"));
  EXPECT_THAT(text, HasSubstr("engine 1 left out: it died"));
  EXPECT_THAT(text, HasSubstr("UNAVAILABLE: no engine"));
  const Json object = Json::parse(HistoryAsJson(history));
  EXPECT_EQ(object["requests"][0]["outcome"], "published");
  EXPECT_EQ(object["requests"][0]["members"], Json({0, 2}));
  EXPECT_EQ(object["requests"][1]["outcome"], "failed");
  EXPECT_EQ(object["requests"][1]["ended"], nullptr);
}

TEST(Text, StatusSaysWhereTheRouterIsAndWhetherItAnswers) {
  rpc::FleetReport report;
  report.slots.resize(2);
  EXPECT_THAT(StatusAsText(report), Not(HasSubstr("router")));
  EXPECT_TRUE(Json::parse(StatusAsJson(report))["router"].is_null());
  report.router = {"http://127.0.0.1:30000", OkStatus(), 1, 4711};
  EXPECT_THAT(StatusAsText(report), HasSubstr("router http://127.0.0.1:30000 lists 1 of 2 engines"));
  const Json router = Json::parse(StatusAsJson(report))["router"];
  EXPECT_EQ(router["url"], "http://127.0.0.1:30000");
  EXPECT_EQ(router["answers"], true);
  EXPECT_EQ(router["entries"], 1);
  EXPECT_EQ(router["pid"], 4711);
  report.router.status = Unavailable("port 30000 is taken", "give another one");
  EXPECT_THAT(StatusAsText(report), HasSubstr("router http://127.0.0.1:30000 does not answer: port 30000 is taken"));
  EXPECT_EQ(Json::parse(StatusAsJson(report))["router"]["answers"], false);
  EXPECT_EQ(Json::parse(StatusAsJson(report))["router"]["error"]["remedy"], "give another one");
}

rpc::VerifyReport Proof() {
  rpc::VerifyReport report;
  report.verified = true;
  report.engines = {{SlotIndex(0), OkStatus(), 3, 500, {}}, {SlotIndex(1), OkStatus(), 3, 500, {}}};
  return report;
}

TEST(Verdict, CountsRanksAndParametersOverEngines) {
  EXPECT_EQ(VerdictOf(Proof()), "verified: 6 ranks, 1000 parameters, 0 differences");
}

TEST(Verdict, NamesDifferencesAndNeverSaysVerifiedThen) {
  rpc::VerifyReport report = Proof();
  report.verified = false;
  report.engines[1].differences = {{TpRank(2), "model.norm.weight", "aa", "bb"}, {TpRank(1), "extra", "", "cc"}};
  const std::string text = VerifyAsText(report);
  EXPECT_THAT(text, HasSubstr("engine 1 rank 2: model.norm.weight is bb, must be aa"));
  EXPECT_THAT(text, HasSubstr("engine 1 rank 1: extra must not be there"));
  EXPECT_THAT(text, HasSubstr("not verified: 6 ranks, 1000 parameters, 2 differences"));
}

TEST(Verdict, SaysUnprovenWhereNobodyKnows) {
  rpc::VerifyReport report = Proof();
  report.verified = false;
  report.unproven = true;
  report.status = FailedPrecondition("no version is published yet");
  EXPECT_EQ(VerdictOf(report), "unproven: no version is published yet");
}

}  // namespace
}  // namespace refit::cli
