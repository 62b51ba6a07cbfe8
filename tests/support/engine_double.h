// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// An engine that enforces its family's contract (RC-TEST-02): it answers an update outside a session, a nested `begin`
// and a stray `end` as its family does, refuses `flush` while requests are pending, dies of an onload of what was never
// released, and notes every promise that its caller broke. Pure: a value, no time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "refit/base/ids.h"
#include "refit/sync/engine_call.h"

namespace refit::testing {

class EngineDouble {
 public:
  // What one operation does instead of its work: `times` calls of it, after `skip` good ones.
  struct Fault {
    sync::AnswerKind kind = sync::AnswerKind::kRefused;
    int skip = 0;
    int times = 1;
    bool runs = false;  // kNone: the call ran all the same, only its answer was lost
  };

  EngineDouble() = default;
  EngineDouble(sync::SessionFamily family, std::size_t loads) : family_(family), weights_(loads, WeightVersion(0)) {}

  void SetFault(sync::Operation operation, Fault fault) { faults_[operation] = fault; }
  void ClearFaults() { faults_.clear(); }

  sync::Answer Call(sync::Operation operation, WeightVersion label);
  sync::Answer Update(std::size_t load, WeightVersion bytes, std::optional<WeightVersion> label);
  void Kill() { dead_ = true; }

  bool dead() const { return dead_; }
  bool paused() const { return paused_; }
  bool session_open() const { return session_open_; }
  bool serves(WeightVersion version) const;
  bool generates() const { return !dead_ && !paused_; }
  bool released() const { return weights_released_ || kv_cache_released_; }
  WeightVersion label() const { return label_; }
  const std::vector<WeightVersion>& update_labels() const { return update_labels_; }
  const std::vector<std::string>& calls() const { return calls_; }
  const std::vector<std::string>& violations() const { return violations_; }
  int count(std::string_view call) const;

 private:
  sync::Answer Run(sync::Operation operation, WeightVersion label);
  sync::Answer RunSession(sync::Operation operation);
  sync::Answer Resume();
  sync::Answer WrongSessionCall(const char* message);
  std::optional<sync::Answer> TakeFault(sync::Operation operation, bool& runs);
  bool Begin(sync::Operation operation);
  void Break(std::string promise) { violations_.push_back(std::move(promise)); }
  bool whole() const { return std::set<WeightVersion>(weights_.begin(), weights_.end()).size() == 1; }

  sync::SessionFamily family_ = sync::SessionFamily::kA;
  std::vector<WeightVersion> weights_;  // version of the bytes of each load, in place
  std::map<sync::Operation, Fault> faults_;
  bool dead_ = false;
  bool unanswered_ = false;  // a mutating call got no answer: nothing may follow
  bool paused_ = false;
  bool session_open_ = false;
  bool cache_is_old_ = true;  // holds KV of the weights it served before
  bool weights_released_ = false;
  bool kv_cache_released_ = false;
  WeightVersion label_;
  std::vector<WeightVersion> update_labels_;
  std::vector<std::string> calls_;
  std::vector<std::string> violations_;
};

}  // namespace refit::testing
