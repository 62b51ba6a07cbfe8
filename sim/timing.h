// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The deadlines and intervals of a simulated fleet, in virtual time.

#pragma once

#include <chrono>

#include "refit/base/time.h"

namespace refit::sim {

inline constexpr Duration kReplyMargin = std::chrono::seconds(1);  // of a call, over its command's budget
inline constexpr Duration kKeepAlive = std::chrono::seconds(2);    // until a connection that is cut is found out
inline constexpr Duration kCallDeadline = std::chrono::seconds(2);
inline constexpr Duration kUpdateDeadline = std::chrono::seconds(2);
inline constexpr Duration kStallDeadline = std::chrono::seconds(5);
inline constexpr Duration kFlushRetryInterval = std::chrono::milliseconds(50);
inline constexpr Duration kLinkTimeout = std::chrono::seconds(1);  // of a read or a handshake on a dead path
inline constexpr Duration kFenceDeadline = std::chrono::seconds(1);
inline constexpr Duration kOrphanDeadline = std::chrono::seconds(60);

inline constexpr Duration kRegisterAgain = std::chrono::seconds(4);  // of a policy worker that is known

inline constexpr Duration kProbeInterval = std::chrono::seconds(1);
inline constexpr Duration kProbeTimeout = std::chrono::milliseconds(500);
inline constexpr Duration kFirstWait = std::chrono::seconds(3);
inline constexpr Duration kLaunchBudget = std::chrono::seconds(8);
inline constexpr Duration kCatchUpBudget = std::chrono::seconds(10);
inline constexpr Duration kAppendDeadline = std::chrono::seconds(1);
inline constexpr Duration kCommandBudget = std::chrono::seconds(3);
inline constexpr Duration kTakeoverAfter = std::chrono::milliseconds(500);
inline constexpr Duration kDrainGrace = std::chrono::seconds(1);         // of requests in flight at a slot that leaves
inline constexpr Duration kReconcileInterval = std::chrono::seconds(1);  // the registry's own (settled C9)
inline constexpr Duration kTermCheckInterval = std::chrono::seconds(1);
inline constexpr Duration kTermCheckTime = std::chrono::milliseconds(2);

}  // namespace refit::sim
