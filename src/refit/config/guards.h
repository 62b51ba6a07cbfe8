// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The setup guards (RC-CFG-01 … -13): what a well-formed configuration must not ask for. Each is a function of its own,
// so that the factories of roles can ask again without the schema in front (RC-CFG-05, -08). Every error names the key,
// its value and what is allowed. All of them run before a buffer is allocated or anybody is called.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "refit/base/status.h"
#include "refit/config/job_options.h"

namespace refit::config {

Status CheckNotColocated(const GenerationOptions& generation);   // RC-CFG-01
Status CheckFitsOneNode(const GenerationOptions& generation);    // RC-CFG-02
Status CheckParallelSizes(const GenerationOptions& generation);  // RC-CFG-03, -04, -05
Status CheckEngine(const EngineOptions& engine);                 // RC-CFG-05 and its own keys
Status CheckPauseMode(BackendChoice backend, PauseChoice pause, const EngineOptions& engine);  // RC-CFG-06
Status CheckRawBf16(std::string_view dtype, std::string_view quantization);                    // RC-CFG-08
Status CheckBucketSizes(const JobOptions& job);                                                // RC-CFG-09
Status CheckPairing(const JobOptions& job);                                                    // RC-CFG-10
Status CheckFaultTolerance(const GenerationOptions& generation);                               // RC-CFG-13
Status CheckRouter(const JobOptions& job);

// All of the above, and what does not fit together besides (a url without attach, a rank given twice).
Status CheckJob(const JobOptions& job);

// What is allowed but not in this build: the other transports, engines that only their adapter can start.
Status CheckBuild(const JobOptions& job);

}  // namespace refit::config
