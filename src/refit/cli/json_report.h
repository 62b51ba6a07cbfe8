// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Everything that --json prints, as text: one object each, fields and units of settled D11. The only user of the JSON
// library in this folder, whose header costs seconds.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"
#include "refit/cli/output.h"
#include "refit/config/job_file.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/rpc/report.h"
#include "refit/runtime/bench_link.h"
#include "refit/runtime/bench_shm.h"
#include "refit/runtime/demo.h"
#include "refit/runtime/doctor.h"

namespace refit::cli {

std::string ErrorAsJson(const Status& status, const std::vector<ResidueLine>& residues);

struct ReadyLine {
  std::string_view role;
  std::string address;
  std::string engine{};  // an agent's: the engine's URL
  std::string router{};  // a controller's: where requests are sent, if the job has one
};
std::string ReadyAsJson(const ReadyLine& ready);

std::string BenchLinkAsJson(const runtime::BenchLinkReport& report, std::string_view transport, std::string_view shape);
std::string BenchShmAsJson(const runtime::BenchShmReport& report, std::string_view shape);
std::string ConfigAsJson(const config::Job& job);
std::string SchemaAsJson();
std::string DemoAsJson(const runtime::DemoReport& report);
std::string DoctorAsJson(const runtime::DoctorReport& report);
std::string HistoryAsJson(const control::History& history);
enum class Lines : std::uint8_t { kMany, kOne };
std::string StatusAsJson(const rpc::FleetReport& report, Lines lines = Lines::kMany);
std::string SyncAsJson(const rpc::SyncReport& report);
std::string VerifyAsJson(const rpc::VerifyReport& report);

}  // namespace refit::cli
