// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Keeps a member of the fleet known to whoever is the controller: registers it again several times a second. That one
// is there, that one is gone, and that another one has taken over show themselves all in the same way (RX-JRNL-05).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/exec/watched.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/controller_finder.h"

namespace refit::runtime {

struct Contacted {
  rpc::Membership membership;  // its term is the authority's where there is one to ask (RX-ID-03)
  Term authority;              // 0: there is none to ask
};

struct ContactOptions {
  ControllerPlace place;
  // Registers the member as it is now. CANCELLED: there is nobody to register just now.
  std::function<Result<rpc::Membership>(rpc::ControllerClient& controller, Duration deadline)> register_at;
  // After a time without a controller, and whenever term or run are others than before. Thread: the contact's.
  std::function<void(const Contacted&)> on_made;
  std::function<void()> on_lost;
};

class Contact {
 public:
  explicit Contact(ContactOptions options);
  ~Contact();
  Contact(const Contact&) = delete;
  Contact& operator=(const Contact&) = delete;

  // Registers the member as it is from now on, and waits until a controller has heard it. A refusal is told at once.
  // Thread: any.
  Result<Contacted> Register(Duration deadline);
  // That was reached last; null: none yet.
  std::shared_ptr<rpc::ControllerClient> controller();

 private:
  struct State {
    bool over = false;
    std::uint64_t asked = 0;
    std::uint64_t answered = 0;
    std::optional<Result<Contacted>> answer;
    std::shared_ptr<rpc::ControllerClient> controller;  // shared with callers that talk to it meanwhile
  };
  void Loop();
  Result<Contacted> TryOnce();
  void Notice(const Result<Contacted>& answer);

  const ContactOptions options_;
  std::string address_;                                // the loop's, of controller_
  std::shared_ptr<rpc::ControllerClient> controller_;  // the loop's
  std::optional<Contacted> contact_;                   // the loop's; nothing: lost, or not yet
  exec::Watched<State> state_;
  std::thread loop_;
};

}  // namespace refit::runtime
