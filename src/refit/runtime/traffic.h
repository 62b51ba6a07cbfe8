// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Steady /generate traffic at engines, and the judge of each answer (settled C9). An answer is stale if the version of
// none of its tokens was the last committed one at any instant between arrival and last byte; it is mixed if its tokens
// are not those that its version says. tests/faults/traffic.py judges by the same words.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/time.h"
#include "refit/engine/engine.h"
#include "refit/exec/watched.h"

namespace refit::runtime {

struct TrafficAnswer {
  SlotIndex slot;
  Instant arrived;
  Instant ended;
  engine::Generation said;
};

struct TrafficCounts {
  std::uint64_t answers = 0;
  std::uint64_t failed = 0;    // no answer: the engine died, or refused
  std::uint64_t spanning = 0;  // tokens of several versions
  std::uint64_t stale = 0;
  std::uint64_t mixed = 0;
  std::string worst;  // the first stale or mixed one
};

class TrafficJudge {
 public:
  // It became the last committed version at an instant of [asked, answered], and says `truth`, greedily. The first time
  // counts.
  void Add(WeightVersion version, Instant asked, Instant answered, std::vector<std::int32_t> truth);
  TrafficCounts Judge(const std::vector<TrafficAnswer>& answers) const;

 private:
  struct Published {
    Instant asked;
    Instant answered;
    std::vector<std::int32_t> truth;
  };
  bool IsStale(const TrafficAnswer& answer) const;
  bool IsMixed(const TrafficAnswer& answer) const;

  std::map<std::string, Published> published_;  // by label
  std::vector<std::string> order_;
};

// Thread: any. One client per slot, which asks again as soon as it was answered.
class Traffic {
 public:
  Traffic(std::vector<std::int32_t> prompt, std::uint32_t max_new_tokens);
  ~Traffic() { Stop(); }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  void Send(SlotIndex slot, const std::string& url);  // from now on; empty: nowhere
  void Stop();                                        // waits for the answers that are under way. Idempotent
  std::vector<TrafficAnswer> Take();
  std::uint64_t failed() const;

 private:
  struct State {
    bool over = false;
    std::map<SlotIndex, std::string> urls;
    std::vector<TrafficAnswer> answers;
    std::uint64_t failed = 0;
  };
  void Run(SlotIndex slot);

  const std::vector<std::int32_t> prompt_;
  const std::uint32_t max_new_tokens_;
  mutable exec::Watched<State> state_;
  std::map<SlotIndex, std::thread> clients_;  // the caller's
};

}  // namespace refit::runtime
