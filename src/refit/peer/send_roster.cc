// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/peer/send_roster.h"

#include <algorithm>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::peer {

void SendRoster::Start(AttemptId attempt, std::vector<sync::Receiver> receivers) {
  attempt_ = attempt;
  receivers_ = std::move(receivers);
  running_.clear();
  results_.clear();
  reported_ = false;
}

Result<Admission> SendRoster::Admit(const StreamRequest& request) {
  if (REFIT_MUTANT("RX-ID-04/serve-for-an-earlier-life", request.policy != policy_, false)) {
    return Aborted("the stream is meant for an earlier life of this policy worker");
  }
  if (request.attempt > attempt_) {
    return Admission::kWait;
  }
  if (REFIT_MUTANT("RX-ID-02/serve-a-past-attempt", request.attempt < attempt_, false)) {
    return Aborted(StrCat("attempt ", ToString(request.attempt), " is over"));
  }
  const bool meant = std::any_of(receivers_.begin(), receivers_.end(), [&request](const sync::Receiver& receiver) {
    return receiver.slot == request.slot &&
           REFIT_MUTANT("RX-ID-04/serve-any-life", receiver.incarnation == request.receiver, true);
  });
  if (!meant) {
    return Aborted(StrCat("engine ", request.slot, " of that incarnation is no receiver of this attempt"));
  }
  if (results_.contains(request.slot) || !running_.insert(request.slot).second) {
    return Aborted(StrCat("engine ", request.slot, " already has a stream in this attempt"));
  }
  return Admission::kServe;
}

void SendRoster::End(AttemptId attempt, SlotIndex slot, SendResult result) {
  if (attempt == attempt_ && running_.erase(slot) > 0) {
    results_[slot] = std::move(result);
  }
}

void SendRoster::EndAbsent(SendEnd end) {
  for (const sync::Receiver& receiver : receivers_) {
    if (!running_.contains(receiver.slot)) {
      results_.try_emplace(receiver.slot, SendResult{end, Aborted("it never opened its stream"), {}, {}});
    }
  }
}

std::optional<SendResult> SendRoster::TakeWhole() {
  if (reported_ || results_.size() != receivers_.size()) {
    return std::nullopt;
  }
  reported_ = true;
  SendResult whole;
  for (const auto& [slot, result] : results_) {
    if (result.end == SendEnd::kComplete) {
      return result;
    }
    if (result.end != SendEnd::kReceiverLeft) {
      whole = result;
    }
  }
  return whole;
}

}  // namespace refit::peer
