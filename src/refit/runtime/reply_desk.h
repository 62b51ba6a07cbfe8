// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Where an rpc thread waits for the loop's answer to its command.

#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "refit/base/time.h"
#include "refit/exec/clock.h"
#include "refit/exec/mailbox.h"
#include "refit/sync/stamp.h"

namespace refit::runtime {

// How much longer than a command's budget its caller waits: the machine's own deadline answers first.
inline constexpr Duration kReplyMargin = std::chrono::seconds(1);

template <typename Reply>
class ReplyDesk {
 public:
  using Ticket = std::shared_ptr<exec::Mailbox<Reply>>;  // shared by the waiting rpc thread and the answering loop

  Ticket Open(const sync::Stamp& stamp) {
    auto ticket = std::make_shared<exec::Mailbox<Reply>>(1);
    const std::lock_guard lock(mutex_);
    if (closed_) {
      ticket->Close();
    }
    waiting_.push_back({stamp, ticket});
    return ticket;
  }
  // Answers the newest caller of that command: a repeated one is refused at once, while the first still waits.
  void Answer(Reply reply) {
    const std::lock_guard lock(mutex_);
    for (auto it = waiting_.rbegin(); it != waiting_.rend(); ++it) {
      if (it->stamp == reply.stamp) {
        static_cast<void>(it->ticket->Push(std::move(reply)));
        waiting_.erase(std::next(it).base());
        return;
      }
    }
  }
  // Nobody will answer any more: whoever waits gets nothing, at once.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const Waiting& one : waiting_) {
      one.ticket->Close();
    }
  }
  // Nothing at the deadline, or after Close().
  std::optional<Reply> Wait(const Ticket& ticket, Instant deadline) {
    auto reply = ticket->Pop(deadline);
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [&ticket](const Waiting& one) { return one.ticket == ticket; });
    return reply;
  }

 private:
  struct Waiting {
    sync::Stamp stamp;
    Ticket ticket;
  };
  std::mutex mutex_;  // rpc threads open, the loop answers
  std::vector<Waiting> waiting_;
  bool closed_ = false;
};

}  // namespace refit::runtime
