// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What each lane ("engine 0", "policy 1") was doing during one sync, for the timeline.

#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/time.h"
#include "refit/rpc/report.h"

namespace refit::runtime {

// Thread: a value of one thread.
class SpanLog {
 public:
  void Start(Instant origin) {
    origin_ = origin;
    open_.clear();
    spans_.clear();
  }
  Instant origin() const { return origin_; }

  void Begin(const std::string& lane, CommandSeq seq, std::string_view name, Instant now) {
    open_[{lane, seq}] = {lane, std::string(name), ToSeconds(now - origin_), 0};
  }
  void End(const std::string& lane, CommandSeq seq, Instant now) {
    const auto found = open_.find({lane, seq});
    if (found != open_.end()) {
      found->second.end_seconds = ToSeconds(now - origin_);
      spans_.push_back(std::move(found->second));
      open_.erase(found);
    }
  }
  bool running(std::string_view name) const {
    return std::any_of(open_.begin(), open_.end(), [name](const auto& span) { return span.second.name == name; });
  }
  std::string running_in(const std::string& lane) const {
    const auto found =
        std::find_if(open_.begin(), open_.end(), [&lane](const auto& span) { return span.second.lane == lane; });
    return found == open_.end() ? std::string() : found->second.name;
  }
  // Every span; what is still open ends now.
  std::vector<rpc::Span> Finish(Instant now) {
    while (!open_.empty()) {
      const auto [lane, seq] = open_.begin()->first;
      End(lane, seq, now);
    }
    return spans_;
  }

 private:
  Instant origin_{};
  std::map<std::pair<std::string, CommandSeq>, rpc::Span> open_;
  std::vector<rpc::Span> spans_;
};

}  // namespace refit::runtime
