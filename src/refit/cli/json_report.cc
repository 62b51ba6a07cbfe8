// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/cli/json_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "refit/cli/report_text.h"
#include "refit/config/schema.h"

namespace refit::cli {
namespace {

using Json = nlohmann::ordered_json;

// Bytes that are no UTF-8 (an engine's words, a path) are replaced.
std::string ToText(const Json& value) { return value.dump(2, ' ', false, Json::error_handler_t::replace); }

Json FromStatus(const Status& status) {
  if (status.ok()) {
    return nullptr;
  }
  return {{"code", ToString(status.code())}, {"message", status.message()}, {"remedy", status.remedy()}};
}

// Numbers and switches as such: the tree has text only.
Json FromScalar(const std::string& text) {
  if (text == "true" || text == "false") {
    return text == "true";
  }
  const Json number = Json::parse(text, nullptr, false);
  return number.is_number() ? number : Json(text);
}

Json FromNode(const config::Node& node) {
  switch (node.kind) {
    case config::Node::Kind::kNull: return nullptr;
    case config::Node::Kind::kScalar: return FromScalar(node.text);
    case config::Node::Kind::kList: {
      Json list = Json::array();
      for (const config::Node& item : node.items) {
        list.push_back(FromNode(item));
      }
      return list;
    }
    case config::Node::Kind::kMap: {
      Json map = Json::object();
      for (std::size_t i = 0; i < node.items.size(); ++i) {
        map[node.keys[i]] = FromNode(node.items[i]);
      }
      return map;
    }
  }
  return nullptr;
}

Json FromEngine(const rpc::EngineReport& engine) {
  return {{"slot", engine.slot.value()},
          {"incarnation", ToHex(engine.incarnation)},
          {"serving", engine.serving},
          {"killed", engine.killed},
          {"residue", sync::ToString(engine.residue)},
          {"tensors_delivered", engine.totals.tensors},
          {"bytes_delivered", engine.totals.bytes},
          {"loads", engine.totals.loads},
          {"stage_seconds", ToSeconds(engine.totals.staged)},
          {"install_seconds", ToSeconds(engine.totals.installing)},
          {"stall_seconds", engine.stall_seconds},
          {"error", FromStatus(engine.status)}};
}

// The one timer scope around the envelope, by the name that dashboards of the original know (RC-SYNC-06).
constexpr const char* kEnvelopeTimer = "prepare_for_generation/transfer_and_update_weights";

Json FromSync(const rpc::SyncReport& report) {
  Json stalls = Json::array();
  Json engines = Json::array();
  for (const rpc::EngineReport& engine : report.engines) {
    stalls.push_back(engine.stall_seconds);
    engines.push_back(FromEngine(engine));
  }
  Json spans = Json::array();
  for (const rpc::Span& span : report.spans) {
    spans.push_back(
        {{"lane", span.lane}, {"name", span.name}, {"begin", span.begin_seconds}, {"end", span.end_seconds}});
  }
  return {{"request_id", report.request_id},    {"source", report.source.empty() ? "policy-default" : report.source},
          {"version", report.version.value()},  {"committed", report.committed},
          {"digest", ToHex(report.digest)},     {"tensors", report.published.tensors},
          {"bytes", report.published.bytes},    {"bytes_delivered", BytesDelivered(report)},
          {"seconds", report.seconds},          {"timers", {{kEnvelopeTimer, report.seconds}}},
          {"gbps", GigabytesPerSecond(report)}, {"stall_seconds", std::move(stalls)},
          {"engines", std::move(engines)},      {"notes", report.notes},
          {"spans", std::move(spans)}};
}

Json FromVerification(const rpc::VerifyReport& report) {
  std::uint64_t ranks = 0;
  std::uint64_t parameters = 0;
  std::size_t difference_count = 0;
  Json engines = Json::array();
  for (const rpc::EngineVerification& engine : report.engines) {
    Json differences = Json::array();
    for (const weights::HashDifference& difference : engine.differences) {
      differences.push_back({{"rank", difference.rank.value()},
                             {"parameter", difference.parameter},
                             {"expected", difference.expected},
                             {"actual", difference.actual}});
    }
    ranks += engine.rank_count;
    parameters += engine.parameter_count;
    difference_count += engine.differences.size();
    engines.push_back({{"slot", engine.slot.value()},
                       {"ranks", engine.rank_count},
                       {"parameters", engine.parameter_count},
                       {"differences", std::move(differences)},
                       {"error", FromStatus(engine.status)}});
  }
  return {{"verified", report.verified},       {"unproven", report.unproven},
          {"version", report.version.value()}, {"ranks", ranks},
          {"parameters", parameters},          {"differences", difference_count},
          {"engines", std::move(engines)},     {"reason", FromStatus(report.status)}};
}

Json FromRouter(const rpc::RouterReport& router) {
  if (router.url.empty()) {
    return nullptr;
  }
  return {{"url", router.url},
          {"answers", router.status.ok()},
          {"entries", router.entries},
          {"pid", router.pid},
          {"error", FromStatus(router.status)}};
}

}  // namespace

std::string ErrorAsJson(const Status& status, const std::vector<ResidueLine>& residues) {
  Json list = Json::array();
  for (const ResidueLine& line : residues) {
    list.push_back({{"engine", line.engine}, {"residue", line.residue}});
  }
  Json error = FromStatus(status);
  error["residues"] = std::move(list);
  return ToText({{"error", std::move(error)}});
}

std::string ReadyAsJson(const ReadyLine& ready) {
  Json object = {{"role", ready.role}, {"ready", true}, {"address", ready.address}, {"pid", getpid()}};
  if (!ready.engine.empty()) {
    object["engine"] = ready.engine;
  }
  if (!ready.router.empty()) {
    object["router"] = ready.router;
  }
  return object.dump();  // one line: who waits for it reads lines
}

std::string BenchLinkAsJson(const runtime::BenchLinkReport& report, std::string_view transport,
                            std::string_view shape) {
  return ToText(Json{{"bench", "link"},
                     {"transport", transport},
                     {"shape", shape},
                     {"bytes", report.bytes},
                     {"tensors", report.tensors},
                     {"pieces", report.pieces},
                     {"piece_bytes", report.piece_bytes},
                     {"seconds_median", report.seconds},
                     {"seconds_min", report.seconds_min},
                     {"opened_seconds", report.opened_seconds},
                     {"first_announced_seconds", report.first_announced_seconds},
                     {"last_announced_seconds", report.last_announced_seconds},
                     {"last_landed_seconds", report.last_landed_seconds},
                     {"link_seconds", report.link_seconds()},
                     {"ceiling_seconds", report.ceiling_seconds},
                     {"ratio", report.ratio()},
                     {"gbps", static_cast<double>(report.bytes) / report.seconds / 1e9},
                     {"samples", report.samples},
                     {"ceiling_samples", report.ceiling_samples}});
}

std::string BenchShmAsJson(const runtime::BenchShmReport& report, std::string_view shape) {
  return ToText(Json{{"bench", "shm"},
                     {"transport", "shm"},
                     {"shape", shape},
                     {"bytes", report.bytes},
                     {"tensors", report.tensors},
                     {"calls", report.calls},
                     {"load_bytes", report.load_bytes},
                     {"seconds_median", report.seconds},
                     {"seconds_min", report.seconds_min},
                     {"seconds_no_digest", report.seconds_no_digest},
                     {"ceiling_seconds", report.ceiling_seconds},
                     {"ratio", report.ratio()},
                     {"gbps", static_cast<double>(report.bytes) / report.seconds / 1e9},
                     {"samples", report.samples},
                     {"ceiling_samples", report.ceiling_samples}});
}

std::string ConfigAsJson(const config::Job& job) {
  return ToText({{"config", FromNode(job.resolved)}, {"notes", job.notes}});
}

std::string SchemaAsJson() {
  Json keys = Json::array();
  for (const config::KeySpec& spec : config::Keys()) {
    keys.push_back({{"key", spec.path},
                    {"required", spec.needed == config::Needed::kRequired},
                    {"default", spec.default_text},
                    {"allowed", spec.allowed},
                    {"meaning", spec.meaning}});
  }
  return ToText({{"keys", std::move(keys)}});
}

std::string SyncAsJson(const rpc::SyncReport& report) { return ToText(FromSync(report)); }
std::string VerifyAsJson(const rpc::VerifyReport& report) { return ToText(FromVerification(report)); }

std::string HistoryAsJson(const control::History& history) {
  Json versions = Json::array();
  for (const control::HistoryEntry& entry : history.entries) {
    Json excluded = Json::array();
    for (const auto& [slot, reason] : entry.excluded) {
      excluded.push_back({{"slot", slot.value()}, {"reason", reason}});
    }
    Json members = Json::array();
    for (const SlotIndex slot : entry.members) {
      members.push_back(slot.value());
    }
    versions.push_back({{"request_id", entry.request_id},
                        {"version", entry.version.value()},
                        {"source", entry.source},
                        {"outcome", OutcomeOf(entry)},
                        {"attempts", entry.attempts},
                        {"began", TimeText(entry.began_at)},
                        {"ended", entry.ended_at == 0 ? Json(nullptr) : Json(TimeText(entry.ended_at))},
                        {"digest", entry.committed ? Json(ToHex(entry.digest)) : Json(nullptr)},
                        {"members", std::move(members)},
                        {"excluded", std::move(excluded)},
                        {"error", FromStatus(entry.status.value_or(OkStatus()))}});
  }
  return ToText({{"run", ToHex(history.run)}, {"requests", std::move(versions)}});
}

std::string StatusAsJson(const rpc::FleetReport& report, Lines lines) {
  Json engines = Json::array();
  for (const rpc::SlotReport& slot : report.slots) {
    engines.push_back({{"slot", slot.slot.value()},
                       {"registered", !slot.incarnation.is_zero()},
                       {"incarnation", ToHex(slot.incarnation)},
                       {"url", slot.engine_url},
                       {"sglang_version", slot.engine_version},
                       {"pid", slot.engine_pid},
                       {"tp", slot.tp_size},
                       {"state", slot.state},
                       {"service", slot.service},
                       {"doing", slot.doing.empty() ? Json(nullptr) : Json(slot.doing)},
                       {"bytes_total", slot.bytes_total},
                       {"bytes_delivered", slot.bytes_delivered},
                       {"gbps", GigabytesPerSecond(slot, report)},
                       {"serving", slot.serving},
                       {"version", slot.version.value()},
                       {"residue", sync::ToString(slot.residue)},
                       {"last_error", slot.last_error}});
  }
  Json policies = Json::array();
  for (const rpc::PolicyReport& policy : report.policies) {
    policies.push_back({{"rank", policy.rank.value()},
                        {"registered", !policy.incarnation.is_zero()},
                        {"incarnation", ToHex(policy.incarnation)},
                        {"address", policy.address},
                        {"source", policy.source}});
  }
  const Json all = {{"run", ToHex(report.run)},
                    {"term", report.term.value()},
                    {"profile", report.profile},
                    {"phase", report.phase},
                    {"version", report.committed.value()},
                    {"stale", report.stale},
                    {"latch", FromStatus(report.latch)},
                    {"bytes_total", report.bytes_total},
                    {"bytes_delivered", report.bytes_delivered},
                    {"router", FromRouter(report.router)},
                    {"engines", std::move(engines)},
                    {"policies", std::move(policies)}};
  return lines == Lines::kMany ? ToText(all) : all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string DemoAsJson(const runtime::DemoReport& report) {
  Json texts = Json::array();
  for (const runtime::DemoText& text : report.texts) {
    texts.push_back({{"when", text.when}, {"engines", text.engines}});
  }
  Json refits = Json::array();
  for (const runtime::DemoRefit& refit : report.refits) {
    Json object = {{"name", refit.name}};
    object.update(FromSync(refit.report));
    object["ceiling_seconds"] = refit.ceiling_seconds;
    object["ceiling_share"] = runtime::CeilingShare(refit);
    refits.push_back(std::move(object));
  }
  Json all = {{"verified", report.verification.verified},
              {"model", report.model},
              {"tp", report.tp_size},
              {"refits", std::move(refits)},
              {"texts", std::move(texts)},
              {"verification", FromVerification(report.verification)},
              {"timeline", report.timeline_path},
              {"logs", report.logs_folder}};
  if (report.kill.has_value()) {
    const runtime::TrafficCounts& traffic = report.kill->traffic;
    all.update({{"killed", fmt::format("engine-{}", report.kill->slot.value())},
                {"recovered", report.kill->recovered},
                {"time_to_return_seconds", report.kill->time_to_return_seconds},
                {"launch_seconds", report.kill->launch_seconds},
                {"rebound_peers", report.kill->rebound_peers},
                {"responses", traffic.answers},
                {"mixed_responses", traffic.mixed},
                {"stale_responses", traffic.stale},
                {"spanning_responses", traffic.spanning},
                {"failed_responses", traffic.failed},
                {"worst_response", traffic.worst}});
  }
  return ToText(all);
}

std::string DoctorAsJson(const runtime::DoctorReport& report) {
  return ToText({{"transports", report.transports},
                 {"engine_kinds", report.engine_kinds},
                 {"cores", report.core_count},
                 {"memory_total", report.memory_total},
                 {"memory_available", report.memory_available},
                 {"shared_memory_total", report.shared_memory_total},
                 {"shared_memory_free", report.shared_memory_free},
                 {"avx2", report.has_avx2},
                 {"fma", report.has_fma},
                 {"sha", report.has_sha},
                 {"gpu_devices", report.gpu_devices},
                 {"nixl", report.nixl},
                 {"engine_program", report.engine_program},
                 {"demo_model", report.demo_model},
                 {"stale_objects", report.stale_objects},
                 {"removed_objects", report.removed_objects},
                 {"advice", report.advice}});
}

}  // namespace refit::cli
