// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/demo_kill.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "refit/exec/clock.h"
#include "refit/rpc/controller_rpc.h"

namespace refit::runtime {
namespace {

constexpr Duration kStatusDeadline = std::chrono::seconds(5);
constexpr Duration kReturnDeadline = std::chrono::minutes(3);
constexpr Duration kLookInterval = std::chrono::milliseconds(10);

// The lines that a role's log gets from here on, without stamp, program and level.
class LogTail {
 public:
  explicit LogTail(std::string path) : path_(std::move(path)) { static_cast<void>(NewLines()); }
  std::vector<std::string> NewLines() {
    std::vector<std::string> lines;
    std::ifstream file(path_);
    file.seekg(offset_);
    for (std::string line; std::getline(file, line) && !file.eof();) {
      offset_ = file.tellg();
      std::size_t begin = 0;
      for (int word = 0; word < 3 && begin != std::string::npos; ++word) {
        begin = line.find(' ', begin);
        begin = begin == std::string::npos ? begin : begin + 1;
      }
      lines.push_back(begin == std::string::npos ? line : line.substr(begin));
    }
    return lines;
  }

 private:
  const std::string path_;
  std::streamoff offset_ = 0;
};

Result<rpc::SlotReport> LookAt(rpc::ControllerClient& controller, SlotIndex slot, WeightVersion& committed) {
  REFIT_ASSIGN_OR_RETURN(const rpc::FleetReport report, controller.GetStatus(kStatusDeadline));
  committed = report.committed;
  const auto found = std::find_if(report.slots.begin(), report.slots.end(),
                                  [slot](const rpc::SlotReport& one) { return one.slot == slot; });
  return found == report.slots.end() ? Result<rpc::SlotReport>(NotFound(fmt::format("engine {} is gone", slot.value())))
                                     : Result<rpc::SlotReport>(*found);
}

}  // namespace

Result<DemoKill> KillAndWatch(const Victim& victim, DemoSink& sink, const std::function<bool()>& interrupted,
                              const std::function<void(const std::string& url)>& on_url) {
  const auto controller = rpc::ControllerClient::Connect(victim.controller);
  WeightVersion committed;
  REFIT_ASSIGN_OR_RETURN(const rpc::SlotReport before, LookAt(*controller, victim.slot, committed));
  LogTail said(victim.logs_folder + "/controller.log");
  std::vector<std::pair<std::string, LogTail>> agents;
  for (std::uint32_t slot = 0; std::filesystem::exists(fmt::format("{}/agent-{}.log", victim.logs_folder, slot));
       ++slot) {
    agents.emplace_back(fmt::format("engine-{}", slot), fmt::format("{}/agent-{}.log", victim.logs_folder, slot));
  }
  const std::string name = fmt::format("engine {}", victim.slot.value());
  DemoKill report{.slot = victim.slot};
  const Instant killed = exec::Now();
  if (before.engine_pid <= 0 || kill(static_cast<pid_t>(before.engine_pid), SIGKILL) != 0) {
    return Unavailable(fmt::format("{} has no process to kill", name), "see its log");
  }
  sink.Line(fmt::format("\n{}: kill -9 {}", name, before.engine_pid));
  Instant launched{};
  Instant looked{};
  while (true) {
    const Instant now = exec::Now();
    const double seconds = ToSeconds(now - killed);
    for (const std::string& line : said.NewLines()) {
      if (!line.starts_with(name + " is ")) {
        continue;
      }
      sink.Line(fmt::format("  +{:6.2f} s  {}", seconds, line));
      launched = line.starts_with(name + " is launching") ? now : launched;
      if (line.starts_with(name + " is stale") && launched > Instant{}) {
        report.launch_seconds = ToSeconds(now - launched);
      }
    }
    if (now - looked >= 5 * kLookInterval) {
      looked = now;
      REFIT_ASSIGN_OR_RETURN(const rpc::SlotReport there, LookAt(*controller, victim.slot, committed));
      if (there.state == "serving" && there.incarnation != before.incarnation && there.version == committed) {
        report.recovered = true;
        report.time_to_return_seconds = seconds;
        on_url(there.engine_url);
        break;
      }
    }
    if (interrupted()) {
      return Status(StatusCode::kCancelled, "interrupted");
    }
    if (now - killed > kReturnDeadline) {
      return DeadlineExceeded(fmt::format("{} did not come back within {:.0f} s", name, seconds),
                              fmt::format("see {}/agent-{}.log", victim.logs_folder, victim.slot.value()));
    }
    exec::WaitUntil(interrupted, now + kLookInterval);
  }
  constexpr std::string_view kLink = "link to policy rank ";
  for (auto& [engine, log] : agents) {
    for (const std::string& line : log.NewLines()) {
      const std::size_t at = line.find(kLink);
      if (at != std::string::npos && line.find(" proved over ") != std::string::npos) {
        const std::size_t begin = at + kLink.size();
        report.rebound_peers.push_back(
            fmt::format("{} policy-{}", engine, line.substr(begin, line.find(' ', begin) - begin)));
      }
    }
  }
  return report;
}

}  // namespace refit::runtime
