// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "refit/cli/json_report.h"

namespace refit::cli {

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

std::string ErrorAsText(const Status& status) {
  std::string line = fmt::format("refit: {}", status.message());
  if (!status.remedy().empty()) {
    line += fmt::format(" ({})", status.remedy());
  }
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

int Fail(Form form, int exit_code, const Status& status, const std::vector<ResidueLine>& residues) {
  if (form == Form::kJson) {
    Print(ErrorAsJson(status, residues));
    return exit_code;
  }
  std::fprintf(stderr, "%s\n", ErrorAsText(status).c_str());
  for (const ResidueLine& line : residues) {
    std::fprintf(stderr, "  engine %u holds: %s\n", line.engine, line.residue.c_str());
  }
  return exit_code;
}

}  // namespace refit::cli
