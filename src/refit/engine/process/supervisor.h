// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The process between an owner and its child (settled C17, RC-KILL-06): it starts the child, adopts whatever the child
// leaves behind, and ends all of it when told to, or when its owner's end of the link closes, however that came about.

#pragma once

#include <cstdint>

namespace refit::engine::process {

// What a supervisor tells its owner, in this order; then the link closes.
enum class NewsKind : std::int32_t {
  kStarted,      // value: the child's pid
  kCannotStart,  // value: errno; nothing follows
  kEnded,        // value: the child's wait status
  kGone,         // the whole tree of its processes is reaped
};
struct News {
  NewsKind kind;
  std::int32_t value;
};

inline constexpr char kTerminate = 'T';  // from the owner: SIGTERM to the child's group

struct SupervisorTask {
  char* const* arguments;  // [0] is the program's path
  char* const* environment;
  int log;   // the child's stdout and stderr
  int link;  // a stream socket
};

// Runs in a process that was forked for it, of one that may have threads: async-signal-safe calls only.
[[noreturn]] void Supervise(const SupervisorTask& task);

}  // namespace refit::engine::process
