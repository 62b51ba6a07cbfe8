// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A job's configuration file: read, checked, resolved. `refit config check` prints the resolved form.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"
#include "refit/config/job_options.h"
#include "refit/config/node.h"

namespace refit::config {

struct Job {
  JobOptions options;
  Node resolved;                   // every default filled in
  std::vector<std::string> notes;  // one line each: keys that are accepted and not read
};

// Errors name the file, and the line where there is one.
Result<Job> ReadJobFile(const std::string& path);
Result<Job> ParseJob(std::string_view text);

std::string FormatYaml(const Node& node);

}  // namespace refit::config
