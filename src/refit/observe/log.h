// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Log lines of the roles: "2026-11-29T20:15:03.123Z agent-0 info engine ready …", one event a line, on stderr.
// Never a payload, a key or an environment (RC-OBS-04).

#pragma once

#include <string_view>

namespace refit::observe {

enum class LogLevel { kInfo, kWarning, kError };

// Who speaks, once per process ("controller", "agent-0"). Call it before threads start.
void SetLogRole(std::string_view role);

// Thread: any. Newlines in text become spaces.
void Log(LogLevel level, std::string_view text);
inline void LogInfo(std::string_view text) { Log(LogLevel::kInfo, text); }
inline void LogWarning(std::string_view text) { Log(LogLevel::kWarning, text); }
inline void LogError(std::string_view text) { Log(LogLevel::kError, text); }

}  // namespace refit::observe
