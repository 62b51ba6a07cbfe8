// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How an unmodified SGLang server is started and waited for (docs/sglang.md): its command, from the user's arguments
// and ours, and the polling until it answers.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/engine/engine.h"

namespace refit::engine::sglang {

struct ServerLaunch {
  std::string python;                  // a path, or a name that PATH knows
  std::vector<std::string> arguments;  // the user's, as `python -m sglang.launch_server` takes them
  std::uint32_t tp_size = 1;
  std::uint16_t port = 0;
  std::string admin_key;
  std::string api_key{};  // what its users must send; empty: nothing
  std::string key_file;   // ends in .yaml; holds KeyFileText of these keys, readable by us only
};

struct ServerCommand {
  std::vector<std::string> arguments;    // [0] is a path
  std::vector<std::string> environment;  // "NAME=value"
};

// INVALID_ARGUMENT names the argument that is ours to give: the port and the key are new for every launch, the address
// is loopback, and --tp is the number that the fleet counts with.
Status CheckServerArguments(const std::vector<std::string>& arguments);

// The server takes one --config file. It gets the keys by that way, so that no command line shows them; where the user
// gives a --config of their own, the keys have to go onto the command line.
ServerCommand MakeServerCommand(const ServerLaunch& launch);
std::string KeyFileText(std::string_view admin_key, std::string_view api_key);

// Why a server that ended by itself never came up, from the last lines of its log. INVALID_ARGUMENT names the argument
// that this version's own parser does not know, or whose value it does not take (RC-CFG-16); NOT_FOUND says that the
// Python has no SGLang; else UNAVAILABLE with those lines.
Status ExplainEnd(std::string_view who, std::string_view exit_text, std::string_view last_output);

// Returns once /model_info answers, with progress lines in the log meanwhile. UNAVAILABLE as soon as ended() says that
// the process is gone, DEADLINE_EXCEEDED at the deadline.
Status AwaitServer(Engine& engine, std::string_view name, const std::function<bool()>& ended, Instant deadline);

}  // namespace refit::engine::sglang
