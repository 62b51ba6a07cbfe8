// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer: asks for one sync after another, each under an id of its own, repeats what was not answered, and looks
// up who answers. Between two syncs it may step.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "refit/control/controller.h"
#include "sim/node.h"

namespace refit::sim {

class ControllerProcess;

class Client {
 public:
  explicit Client(World& world);

  // count more requests, one after the other; done after the last answer.
  void Ask(std::uint32_t count, std::function<void()> done);
  void Cancel();           // the one that is waited for
  void AskConcurrently();  // under another id
  void OnControllerLost(std::uint32_t number);
  void OnNewController();

  void Answer(ControllerProcess& from, std::uint64_t asking, const control::SyncAnswered& answer);

  std::uint32_t requests() const { return requests_; }
  bool waits() const { return current_.has_value(); }
  const std::optional<Status>& last() const { return last_; }
  WeightVersion published() const { return published_; }  // the highest that it was told of

 private:
  struct Current {
    std::string id;
    std::string source;
    std::uint64_t asking = 0;
    std::uint32_t tries = 0;
    std::uint32_t controller = 0;
    Instant asked{};
  };
  void Next();
  void Send();
  void Retry(Duration pause);
  void Finish(const Status& status);

  World& world_;
  std::optional<Current> current_;
  std::uint32_t requests_ = 0;
  std::uint32_t left_ = 0;
  std::uint64_t next_asking_ = 1;
  std::function<void()> done_;
  std::optional<Status> last_;
  WeightVersion published_;
};

}  // namespace refit::sim
