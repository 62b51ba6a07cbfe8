// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// engine::Engine over SGLang's HTTP contract (docs/spec/sglang-wire.md), for SGLang itself and for the reference
// engine. A fresh connection per control call, a whole-call deadline, a capped answer, no redirects, no proxy.

#pragma once

#include <memory>
#include <string>

#include "refit/base/status.h"
#include "refit/engine/engine.h"

namespace refit::engine::sglang {

struct SglangOptions {
  std::string url;        // "http://127.0.0.1:30000"
  std::string admin_key;  // sent as Bearer with control calls when not empty
  std::string api_key{};  // with /generate, /model_info and /server_info; empty: the admin key
  sync::PauseMode pause_mode = sync::PauseMode::kAbort;
};

Result<std::unique_ptr<Engine>> ConnectSglang(SglangOptions options);

}  // namespace refit::engine::sglang
