// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/controller_finder.h"

#include <poll.h>

#include <chrono>
#include <memory>
#include <utility>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/store/store.h"

namespace refit::runtime {
namespace {

constexpr int kPauseMilliseconds = 100;  // between a controller that was lost and the next look for one

// It ended, or may not act any more, before it knew what became of the request.
bool IsInDoubt(const Status& status) {
  return status.code() == StatusCode::kAborted && status.message().starts_with("IN_DOUBT");
}

}  // namespace

// The file is opened anew each time: it may have been moved away for a new run.
Result<FoundController> FindController(const ControllerPlace& place) {
  FoundController found{.address = place.address, .term = {}};
  if (place.state_directory.empty()) {
    return found;
  }
  const auto store = store::Store::OpenExisting(place.state_directory);
  auto holder = store.has_value() ? (*store)->ReadHolder() : Result<store::Holder>(store.status());
  if (holder.has_value()) {
    found.term = holder->term;
  }
  if (!place.address.empty()) {
    return found;
  }
  if (!holder.has_value()) {
    return holder.status();
  }
  if (holder->address.empty()) {
    return Unavailable(StrCat("no controller serves the state directory ", place.state_directory),
                       "start `refit controller` with it");
  }
  found.address = std::move(holder->address);
  return found;
}

Result<rpc::SyncReport> SyncWithSuccessors(const ControllerPlace& place, rpc::SyncRequest request,
                                           const rpc::ProgressSink& progress) {
  const Instant deadline = exec::Now() + request.budget;
  bool heard = !place.state_directory.empty();  // else somebody must have been at the address before he can be lost
  while (true) {
    const auto found = FindController(place);
    if (!found.has_value() && (found.status().code() != StatusCode::kUnavailable || exec::Now() >= deadline)) {
      return found.status();
    }
    if (found.has_value()) {
      request.budget = deadline - exec::Now();
      auto report = rpc::ControllerClient::Connect(found->address)->Sync(request, [&](const rpc::SyncProgress& at) {
        heard = true;
        progress(at);
      });
      const Status& status = report.has_value() ? report->status : report.status();
      const bool again = report.has_value() ? IsInDoubt(status) : heard && status.code() == StatusCode::kUnavailable;
      if (!again || exec::Now() >= deadline) {
        return report;
      }
    }
    poll(nullptr, 0, kPauseMilliseconds);
  }
}

}  // namespace refit::runtime
