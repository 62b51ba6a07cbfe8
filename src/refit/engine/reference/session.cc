// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/session.h"

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::engine::reference {
namespace {

using sync::SessionFamily;

const std::vector<std::string>& OrAll(const std::vector<std::string>& tags) {
  static const std::vector<std::string> kAll = {"kv_cache", "weights", "cuda_graph"};
  return tags.empty() ? kAll : tags;
}

}  // namespace

Reply Session::Begin() {
  if (open_) {
    return family_ == SessionFamily::kB
               ? Reply{ReplyKind::kDeath, "AssertionError: begin_weight_update while a session is open"}
               : Reply{ReplyKind::kRefused, "a weight-update session is already open; call end_weight_update() first"};
  }
  open_ = true;
  return {ReplyKind::kOk, "Success"};
}

Reply Session::End() {
  if (!open_) {
    return family_ == SessionFamily::kB
               ? Reply{ReplyKind::kDeath, "AssertionError: end_weight_update without a session"}
               : Reply{ReplyKind::kRefused, "no weight-update session is open; call begin_weight_update() first"};
  }
  open_ = false;
  return {ReplyKind::kOk, "Success"};
}

Reply Session::CheckUpdate() const {
  const bool needs_session = REFIT_MUTANT("RC-TEST-02/update-without-session", family_ != SessionFamily::kA, false);
  if (!needs_session || open_) {
    return {};
  }
  return family_ == SessionFamily::kB
             ? Reply{ReplyKind::kDeath, "AssertionError: update_weights_from_tensor without a session"}
             : Reply{ReplyKind::kRefused,
                     "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()"};
}

Reply Session::FlushAfterUpdate(Occupancy occupancy) const {
  if (Idle(occupancy)) {
    return {};
  }
  return family_ == SessionFamily::kC
             ? Reply{ReplyKind::kRefused, "weights were updated, but the cache was not flushed: requests are pending"}
             : Reply{ReplyKind::kDeath, "AssertionError: Cache flush failed after updating weights"};
}

void Session::Pause(PauseMode mode) {
  if (mode != PauseMode::kAbort) {
    stopped_ = true;
  }
}

bool Session::Idle(Occupancy occupancy) const {
  // Families B and C do not count the waiting queue of a stopped scheduler.
  const bool ignore_waiting = family_ != SessionFamily::kA && stopped_;
  return occupancy.running == 0 && (ignore_waiting || occupancy.waiting == 0);
}

bool Session::CanFlush(Occupancy occupancy, FlushKind kind) const {
  if (kind == FlushKind::kWaiting) {
    return occupancy.running == 0 && occupancy.waiting == 0;
  }
  return REFIT_MUTANT("RC-TEST-02/flush-while-busy", Idle(occupancy), true);
}

Reply Session::Release(const std::vector<std::string>& tags, Occupancy occupancy) {
  if (!Idle(occupancy)) {
    return {ReplyKind::kDeath, "AssertionError: release_memory_occupation should be called only when server is idle."};
  }
  for (const std::string& tag : OrAll(tags)) {
    released_.insert(tag);
  }
  return {};
}

Reply Session::Resume(const std::vector<std::string>& tags) {
  for (const std::string& tag : OrAll(tags)) {
    if (released_.erase(tag) == 0) {
      return {ReplyKind::kDeath, StrCat("KeyError: '", tag, "'")};
    }
  }
  return {};
}

}  // namespace refit::engine::reference
