// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The demo's crash: one engine's server is killed, and what follows is shown as it happens.

#pragma once

#include <functional>
#include <string>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/runtime/demo.h"

namespace refit::runtime {

struct Victim {
  std::string controller;   // its address
  std::string logs_folder;  // of every role
  SlotIndex slot;
};

// Until the slot serves the published version again, by another life. on_url: where it serves from then on.
// Thread: blocks.
Result<DemoKill> KillAndWatch(const Victim& victim, DemoSink& sink, const std::function<bool()>& interrupted,
                              const std::function<void(const std::string& url)>& on_url);

}  // namespace refit::runtime
