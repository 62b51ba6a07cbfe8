// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Where rpc threads wait for what the controller's machine answers to a request, by its id. Several may wait for one.

#pragma once

#include <map>
#include <memory>
#include <string>

#include "refit/exec/mailbox.h"
#include "refit/exec/watched.h"

namespace refit::runtime {

// Thread: any.
template <typename Answer>
class AnswerDesk {
 public:
  using Ticket = std::shared_ptr<exec::Mailbox<Answer>>;  // shared by the waiting rpc thread and the answering loop

  // Before the request is made.
  Ticket Open(const std::string& request_id) {
    auto ticket = std::make_shared<exec::Mailbox<Answer>>(1);
    waiting_.With([&](Waiting& waiting) { waiting.emplace(request_id, ticket); });
    return ticket;
  }
  void Tell(const std::string& request_id, const Answer& answer) {
    waiting_.With([&](Waiting& waiting) {
      const auto [begin, end] = waiting.equal_range(request_id);
      for (auto it = begin; it != end; ++it) {
        static_cast<void>(it->second->Push(answer));
      }
      waiting.erase(begin, end);
    });
  }
  void Close(const Ticket& ticket) {
    waiting_.With([&ticket](Waiting& waiting) {
      std::erase_if(waiting, [&ticket](const auto& one) { return one.second == ticket; });
    });
  }

 private:
  using Waiting = std::multimap<std::string, Ticket>;
  exec::Watched<Waiting> waiting_;
};

}  // namespace refit::runtime
