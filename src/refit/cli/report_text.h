// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the controller reports, as text for people.

#pragma once

#include <string>
#include <vector>

#include "refit/cli/output.h"
#include "refit/observe/progress.h"
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
std::string StatusAsText(const rpc::FleetReport& report);

// "verified: 6 ranks, 1632 parameters, 0 differences", or what is wrong.
std::string VerdictOf(const rpc::VerifyReport& report);
std::string VerifyAsText(const rpc::VerifyReport& report);

}  // namespace refit::cli
