// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Which answer belongs to which call: as the hosts pair them, by the stamp of the command.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "refit/sync/command.h"

namespace refit::sim {

class ControllerProcess;

// Whom an answer goes to; nobody where a message was only a second copy.
struct ReplyTo {
  ControllerProcess* controller = nullptr;
  std::uint64_t call = 0;
};

template <typename Reply>
class ReplyDesk {
 public:
  // A command is handed to the machine: what it answers at once with that stamp is this call's.
  void Begin(const sync::Stamp& stamp, ReplyTo to) {
    arriving_ = {stamp, to};
    arrived_ = true;
  }
  void End() {
    if (std::exchange(arrived_, false)) {
      waiting_.push_back(arriving_);
    }
  }
  // The call that this answers, or nobody.
  ReplyTo Take(const Reply& reply) {
    if (arrived_ && arriving_.stamp == reply.stamp) {
      arrived_ = false;
      return arriving_.to;
    }
    for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
      if (waiting->stamp == reply.stamp) {
        const ReplyTo to = waiting->to;
        waiting_.erase(waiting);
        return to;
      }
    }
    return {};
  }

 private:
  struct Waiting {
    sync::Stamp stamp;
    ReplyTo to;
  };
  Waiting arriving_;
  bool arrived_ = false;
  std::deque<Waiting> waiting_;
};

}  // namespace refit::sim
