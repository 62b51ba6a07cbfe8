// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the controller reports, as text for people.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "refit/cli/output.h"
#include "refit/observe/progress.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/rpc/report.h"

namespace refit::cli {

observe::ProgressStyle ProgressStyleFor(Form form);
observe::Glyphs TerminalGlyphs();

// Engines that the sync left with something else than its version.
std::vector<ResidueLine> ResiduesOf(const rpc::SyncReport& report);

// Bytes over ranks and their speed (settled D11).
ByteCount BytesDelivered(const rpc::SyncReport& report);
double GigabytesPerSecond(const rpc::SyncReport& report);

std::string SyncAsText(const rpc::SyncReport& report);
// One line per fact that changes slowly, and a row for each engine: what it does, how far it is.
std::string StatusAsText(const rpc::FleetReport& report, observe::Glyphs glyphs = observe::Glyphs::kAscii);
double GigabytesPerSecond(const rpc::SlotReport& slot, const rpc::FleetReport& report);  // of the running transfer

std::string HistoryAsText(const control::History& history);
std::string TimeText(std::uint64_t unix_milliseconds);           // "2026-11-30T11:20:24.123Z"; "-" for 0
std::string_view OutcomeOf(const control::HistoryEntry& entry);  // "published", "failed", "unfinished"

// "verified: 6 ranks, 1632 parameters, 0 differences", or what is wrong.
std::string VerdictOf(const rpc::VerifyReport& report);
std::string VerifyAsText(const rpc::VerifyReport& report);

}  // namespace refit::cli
