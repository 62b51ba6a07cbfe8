// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/cli/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace refit::cli {
namespace {

constexpr std::size_t kDifferencesShown = 10;
constexpr std::size_t kShort = 8;  // of an identity, for people

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string DescribeDifference(std::uint32_t engine, const weights::HashDifference& difference) {
  const std::string where = fmt::format("engine {} rank {}", engine, difference.rank.value());
  if (difference.parameter.empty()) {
    return where + ": the whole rank is missing";
  }
  if (difference.expected.empty()) {
    return fmt::format("{}: {} must not be there", where, difference.parameter);
  }
  if (difference.actual.empty()) {
    return fmt::format("{}: {} is missing", where, difference.parameter);
  }
  return fmt::format("{}: {} is {}, must be {}", where, difference.parameter, difference.actual, difference.expected);
}

// "███░░ 60 %"
std::string BarOf(const rpc::SlotReport& slot, observe::Glyphs glyphs) {
  constexpr std::size_t kCells = 8;
  const double share = std::min(1.0, static_cast<double>(slot.bytes_delivered) / static_cast<double>(slot.bytes_total));
  const auto filled = static_cast<std::size_t>(share * kCells);
  std::string bar;
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    const bool full = cell < filled;
    bar += glyphs == observe::Glyphs::kUnicode ? (full ? "█" : "░") : (full ? "#" : "-");
  }
  return fmt::format("{} {:3.0f} %", bar, 100 * share);
}

std::string Numbers(const std::vector<SlotIndex>& slots) {
  std::string text;
  for (const SlotIndex slot : slots) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", slot.value());
  }
  return OrDash(text);
}

}  // namespace

observe::ProgressStyle ProgressStyleFor(Form form) {
  const observe::ProgressStyle style = observe::StyleOfTerminal();
  return form == Form::kJson && style == observe::ProgressStyle::kLines ? observe::ProgressStyle::kSilent : style;
}

observe::Glyphs TerminalGlyphs() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      return observe::GlyphsOfLocale(value);
    }
  }
  return observe::Glyphs::kAscii;
}

std::vector<ResidueLine> ResiduesOf(const rpc::SyncReport& report) {
  std::vector<ResidueLine> lines;
  for (const rpc::EngineReport& engine : report.engines) {
    if (!engine.serving || !engine.status.ok()) {
      lines.push_back({engine.slot.value(), sync::ToString(engine.residue)});
    }
  }
  return lines;
}

ByteCount BytesDelivered(const rpc::SyncReport& report) {
  ByteCount bytes = 0;
  for (const rpc::EngineReport& engine : report.engines) {
    bytes += engine.totals.bytes;
  }
  return bytes;
}

double GigabytesPerSecond(const rpc::SyncReport& report) {
  return report.seconds > 0 ? static_cast<double>(BytesDelivered(report)) / report.seconds / 1e9 : 0;
}

std::string SyncAsText(const rpc::SyncReport& report) {
  if (report.engines.empty()) {
    return fmt::format("version {} published, as a controller before this one recorded, digest {}",
                       report.version.value(), ToHex(report.digest));
  }
  std::string text =
      fmt::format("version {} published: {} tensors, {}, in {}, {:.2f} GB/s delivered, digest {}\n",
                  report.version.value(), report.published.tensors, observe::FormatBytes(report.published.bytes),
                  observe::FormatSeconds(report.seconds), GigabytesPerSecond(report), ToHex(report.digest));
  std::vector<std::vector<std::string>> rows;
  for (const rpc::EngineReport& engine : report.engines) {
    rows.push_back({fmt::format("{}", engine.slot.value()),
                    engine.serving  ? "serving"
                    : engine.killed ? "ended"
                                    : "not serving",
                    engine.serving ? fmt::format("version {}", report.version.value()) : sync::ToString(engine.residue),
                    observe::FormatBytes(engine.totals.bytes), fmt::format("{}", engine.totals.loads),
                    engine.stall_seconds > 0 ? observe::FormatSeconds(engine.stall_seconds) : "-",
                    engine.status.ok() ? "" : engine.status.message()});
  }
  text += observe::FormatTable({"engine", "state", "holds", "delivered", "loads", "stall", ""}, rows);
  for (const std::string& note : report.notes) {
    text += fmt::format("note: {}\n", note);
  }
  text.pop_back();
  return text;
}

double GigabytesPerSecond(const rpc::SlotReport& slot, const rpc::FleetReport& report) {
  return report.transfer_seconds > 0 ? static_cast<double>(slot.bytes_delivered) / report.transfer_seconds / 1e9 : 0;
}

std::string StatusAsText(const rpc::FleetReport& report, observe::Glyphs glyphs) {
  std::string text =
      fmt::format("run {}, term {}, profile {}, {}, {}\n", ToHex(report.run).substr(0, kShort), report.term.value(),
                  report.profile, report.phase,
                  report.committed.value() == 0 ? std::string("no version published yet")
                                                : fmt::format("version {} published", report.committed.value()));
  if (!report.latch.ok()) {
    text += fmt::format("latched: {}\n", report.latch.message());
  }
  std::vector<std::vector<std::string>> engines;
  for (const rpc::SlotReport& slot : report.slots) {
    const bool registered = !slot.incarnation.is_zero();
    const bool usual = slot.service.empty() || slot.service == "in service" || slot.state == "retired";
    const bool moves = slot.bytes_total > 0;
    engines.push_back({fmt::format("{}", slot.slot.value()),
                       registered ? ToHex(slot.incarnation).substr(0, kShort) : "-",
                       usual ? slot.state : slot.state + ", " + slot.service,
                       !registered    ? "-"
                       : slot.serving ? fmt::format("version {}", slot.version.value())
                                      : sync::ToString(slot.residue),
                       OrDash(slot.doing), moves ? BarOf(slot, glyphs) : "-",
                       moves ? fmt::format("{:.2f}", GigabytesPerSecond(slot, report)) : "-", OrDash(slot.engine_url),
                       slot.last_error});
  }
  text += observe::FormatTable({"engine", "life", "state", "holds", "doing", "delivered", "GB/s", "url", ""}, engines);
  std::vector<std::vector<std::string>> policies;
  for (const rpc::PolicyReport& policy : report.policies) {
    policies.push_back({fmt::format("{}", policy.rank.value()),
                        policy.incarnation.is_zero() ? "not registered" : "registered", OrDash(policy.address),
                        OrDash(policy.source)});
  }
  text += observe::FormatTable({"policy", "state", "address", "source"}, policies);
  if (!report.router.url.empty()) {
    text += fmt::format("router {} {}\n", report.router.url,
                        report.router.status.ok()
                            ? fmt::format("lists {} of {} engines", report.router.entries, report.slots.size())
                            : "does not answer: " + report.router.status.message());
  }
  text.pop_back();
  return text;
}

std::string TimeText(std::uint64_t unix_milliseconds) {
  const auto seconds = static_cast<std::time_t>(unix_milliseconds / 1000);
  std::tm utc{};
  char text[32] = "-";
  if (unix_milliseconds > 0 && gmtime_r(&seconds, &utc) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    return fmt::format("{}.{:03}Z", text, unix_milliseconds % 1000);
  }
  return text;
}

std::string_view OutcomeOf(const control::HistoryEntry& entry) {
  return entry.committed ? "published" : entry.status.has_value() ? "failed" : "unfinished";
}

std::string HistoryAsText(const control::History& history) {
  std::string text = fmt::format("run {}, {} requests\n", ToHex(history.run).substr(0, kShort), history.entries.size());
  std::vector<std::vector<std::string>> rows;
  for (const control::HistoryEntry& entry : history.entries) {
    const bool timed = entry.ended_at > 0 && entry.ended_at >= entry.began_at && entry.began_at > 0;
    std::string remark = entry.status.has_value() && !entry.status->ok() ? entry.status->ToString() : "";
    for (const auto& [slot, reason] : entry.excluded) {
      remark += fmt::format("{}engine {} left out: {}", remark.empty() ? "" : "; ", slot.value(), reason);
    }
    rows.push_back({fmt::format("{}", entry.version.value()), std::string(OutcomeOf(entry)), TimeText(entry.began_at),
                    timed ? observe::FormatSeconds(static_cast<double>(entry.ended_at - entry.began_at) / 1000) : "-",
                    fmt::format("{}", entry.attempts), Numbers(entry.members),
                    entry.committed ? ToHex(entry.digest).substr(0, kShort) : "-", entry.request_id,
                    OrDash(entry.source), std::move(remark)});
  }
  text += observe::FormatTable(
      {"version", "outcome", "asked", "took", "attempts", "engines", "digest", "request", "source", ""}, rows);
  text.pop_back();
  return text;
}

std::string VerdictOf(const rpc::VerifyReport& report) {
  std::uint64_t ranks = 0;
  std::uint64_t parameters = 0;
  std::size_t differences = 0;
  std::string unread;
  for (const rpc::EngineVerification& engine : report.engines) {
    ranks += engine.rank_count;
    parameters += engine.parameter_count;
    differences += engine.differences.size();
    if (!engine.status.ok() && unread.empty()) {
      unread = engine.status.message();
    }
  }
  if (report.verified) {
    return fmt::format("verified: {} ranks, {} parameters, 0 differences", ranks, parameters);
  }
  const std::string why = !report.status.ok() ? report.status.message() : unread;
  if (report.unproven) {
    return fmt::format("unproven: {}", why);
  }
  return fmt::format("not verified: {} ranks, {} parameters, {} differences{}", ranks, parameters, differences,
                     why.empty() ? "" : "; " + why);
}

std::string VerifyAsText(const rpc::VerifyReport& report) {
  std::string text;
  std::size_t shown = 0;
  std::size_t all = 0;
  for (const rpc::EngineVerification& engine : report.engines) {
    if (!engine.status.ok()) {
      text += fmt::format("engine {}: {}\n", engine.slot.value(), engine.status.ToString());
    } else {
      text += fmt::format("engine {}: {} ranks, {} parameters, {} differences\n", engine.slot.value(),
                          engine.rank_count, engine.parameter_count, engine.differences.size());
    }
    all += engine.differences.size();
    for (const weights::HashDifference& difference : engine.differences) {
      if (shown < kDifferencesShown) {
        text += fmt::format("  {}\n", DescribeDifference(engine.slot.value(), difference));
        ++shown;
      }
    }
  }
  if (all > shown) {
    text += fmt::format("  … and {} more\n", all - shown);
  }
  return text + VerdictOf(report);
}

}  // namespace refit::cli
