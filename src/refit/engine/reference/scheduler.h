// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs generation one step at a time over the requests in flight, round robin. Control calls run between two steps, on
// their caller's thread, with the model to themselves: what SGLang's FIFO of messages amounts to.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/engine/reference/forward.h"
#include "refit/engine/reference/sampler.h"
#include "refit/engine/reference/session.h"

namespace refit::engine::reference {

struct VersionSpan {  // tokens [start, end) came from weights of this label
  std::string version;
  std::size_t start = 0;
  std::size_t end = 0;
};

// One generation request. The scheduler owns the fields below `done` until then.
struct ScheduledRequest {
  enum class Finish : std::uint8_t { kLength, kStop, kAbort, kError };

  std::string rid;
  std::vector<TokenId> prompt;
  std::uint32_t max_new_tokens = 16;
  std::vector<TokenId> stop_tokens;
  Sampler sampler{SamplingOptions{}};

  bool done = false;
  Finish finish = Finish::kLength;
  std::string error;
  std::vector<TokenId> output;
  std::vector<double> log_probabilities;  // of the chosen tokens
  std::vector<VersionSpan> versions;
  std::uint32_t retractions = 0;
  KvCache cache;
};

// Thread: any, for everything.
class Scheduler {
 public:
  // The generator outlives the scheduler; null: an engine that cannot generate.
  explicit Scheduler(Generator* generator);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void Submit(std::shared_ptr<ScheduledRequest> request);
  // False when the scheduler was stopped first.
  bool Wait(const ScheduledRequest& request);

  // Runs a control call between two steps.
  void Between(const std::function<void(Occupancy)>& control);
  void Pause(PauseMode mode);  // abort: only aborts
  void Continue();
  void Abort(std::string_view rid_prefix);  // "": all
  void SetLabel(const std::string& label);
  // Waits until nothing runs or waits; false at the deadline.
  bool WaitIdle(Duration timeout);

  // Grows with every message that a real scheduler would have sent; a health probe only looks whether it moved.
  std::uint64_t message_count() const { return messages_.load(); }

  void Stop();  // idempotent; unfinished requests stay unfinished

 private:
  using RequestPointer = std::shared_ptr<ScheduledRequest>;
  void Run();
  void Step();
  void Advance(ScheduledRequest& request);
  void FinishRequest(std::size_t index, ScheduledRequest::Finish finish);
  Occupancy occupancy() const { return {running_.size(), waiting_.size()}; }

  // The mutex, taken between two steps; its end wakes the scheduler.
  class BetweenSteps {
   public:
    explicit BetweenSteps(Scheduler& scheduler);
    ~BetweenSteps();
    BetweenSteps(const BetweenSteps&) = delete;
    BetweenSteps& operator=(const BetweenSteps&) = delete;

   private:
    Scheduler& scheduler_;
    std::unique_lock<std::mutex> lock_;
  };

  Generator* const generator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> controls_waiting_ = 0;  // a step yields to them
  std::atomic<std::uint64_t> messages_ = 0;
  bool stopping_ = false;
  bool paused_ = false;
  std::string label_ = "default";
  std::vector<RequestPointer> running_;
  std::deque<RequestPointer> waiting_;
  std::size_t next_ = 0;
  std::thread thread_;
};

}  // namespace refit::engine::reference
