// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the long-lived roles have in common on the command line.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "refit/base/status.h"
#include "refit/cli/interrupt.h"
#include "refit/cli/json_report.h"
#include "refit/cli/output.h"
#include "refit/config/job_file.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/controller_finder.h"

namespace CLI {
class App;
}

namespace refit::cli {

void AddFormFlag(CLI::App& app, Form& form);  // --json

void BeginRole(const std::string& name);  // of a long-lived process, before its first thread; the name is for the log

// Prints the ready line, then waits for SIGINT or SIGTERM. The caller's host ends by its destructor.
int ServeUntilInterrupted(Form form, const ReadyLine& ready);

// Where a client looks for the controller: --controller or --state-directory.
struct ControllerFlags {
  std::string address;
  std::string state_directory;
};
void AddControllerFlags(CLI::App& app, ControllerFlags& flags);
// What they say, or else the configuration: its state directory, or its address where that names a port. job may be
// null.
Result<runtime::ControllerPlace> PlaceOf(const ControllerFlags& flags, const config::Job* job);

// The first line of a key file; `name` is the flag or key that names it.
Result<std::string> ReadKey(std::string_view name, const std::string& path);

// The controller that these flags, and nothing else, name. FailToFind says why there is none: a usage error, or nobody
// serves there.
Result<std::unique_ptr<rpc::ControllerClient>> FindForPeople(const ControllerFlags& flags);
int FailToFind(Form form, const Status& status);

// What the configuration says of NIXL; --nixl-library wins over its library. job may be null.
transport::NixlOptions NixlFrom(const std::string& flag, const config::Job* job);

}  // namespace refit::cli
