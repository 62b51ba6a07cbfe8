// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/scheduler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace refit::engine::reference {
namespace {

double LogProbability(std::span<const float> logits, TokenId token) {
  const float top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit - top));
  }
  return static_cast<double>(logits[static_cast<std::size_t>(token)] - top) - std::log(sum);
}

void ExtendSpan(std::vector<VersionSpan>& spans, const std::string& label, std::size_t token) {
  if (spans.empty() || spans.back().version != label) {
    spans.push_back({label, token, token});
  }
  spans.back().end = token + 1;
}

}  // namespace

Scheduler::Scheduler(Generator* generator) : generator_(generator), thread_([this] { Run(); }) {}

Scheduler::~Scheduler() {
  Stop();
  thread_.join();
}

void Scheduler::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

Scheduler::BetweenSteps::BetweenSteps(Scheduler& scheduler)
    : scheduler_(scheduler), lock_(scheduler.mutex_, std::defer_lock) {
  ++scheduler_.controls_waiting_;
  lock_.lock();
  --scheduler_.controls_waiting_;
}

Scheduler::BetweenSteps::~BetweenSteps() {
  lock_.unlock();
  scheduler_.changed_.notify_all();
}

void Scheduler::Submit(std::shared_ptr<ScheduledRequest> request) {
  const BetweenSteps here(*this);
  waiting_.push_back(std::move(request));
}

bool Scheduler::Wait(const ScheduledRequest& request) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return request.done || stopping_; });
  return request.done;
}

void Scheduler::Between(const std::function<void(Occupancy)>& control) {
  const BetweenSteps here(*this);
  control(occupancy());
  ++messages_;
}

void Scheduler::Pause(PauseMode mode) {
  if (mode == PauseMode::kAbort) {
    Abort("");
    return;
  }
  const BetweenSteps here(*this);
  paused_ = true;
  if (mode == PauseMode::kRetract) {
    // Back to the front of the queue, in order; their cache is computed again.
    for (auto request = running_.rbegin(); request != running_.rend(); ++request) {
      (*request)->cache.Clear();
      ++(*request)->retractions;
      waiting_.push_front(*request);
    }
    running_.clear();
  }
}

void Scheduler::Continue() {
  const BetweenSteps here(*this);
  paused_ = false;
}

void Scheduler::Abort(std::string_view rid_prefix) {
  const BetweenSteps here(*this);
  const auto matches = [&](const RequestPointer& request) { return request->rid.starts_with(rid_prefix); };
  const auto first = std::stable_partition(waiting_.begin(), waiting_.end(), std::not_fn(matches));
  running_.insert(running_.end(), first, waiting_.end());
  waiting_.erase(first, waiting_.end());
  for (std::size_t i = 0; i < running_.size();) {
    if (matches(running_[i])) {
      FinishRequest(i, ScheduledRequest::Finish::kAbort);
    } else {
      ++i;
    }
  }
}

void Scheduler::SetLabel(const std::string& label) {
  const BetweenSteps here(*this);
  label_ = label;
}

bool Scheduler::WaitIdle(Duration timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return (running_.empty() && waiting_.empty()) || stopping_; });
  return running_.empty() && waiting_.empty();
}

void Scheduler::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] {
      const bool work = !paused_ && (!running_.empty() || !waiting_.empty());
      return stopping_ || (work && controls_waiting_.load() == 0);
    });
    if (stopping_) {
      return;
    }
    Step();
    if (controls_waiting_.load() != 0) {
      lock.unlock();  // the mutex is not fair: let them in
      std::this_thread::yield();
      lock.lock();
    }
  }
}

void Scheduler::Step() {
  running_.insert(running_.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  const std::size_t index = next_ % running_.size();
  next_ = index + 1;
  Advance(*running_[index]);
  ++messages_;
  ScheduledRequest& request = *running_[index];
  using Finish = ScheduledRequest::Finish;
  const bool stopped = !request.output.empty() && std::ranges::count(request.stop_tokens, request.output.back()) != 0;
  if (!request.error.empty()) {
    FinishRequest(index, Finish::kError);
  } else if (stopped) {
    FinishRequest(index, Finish::kStop);
  } else if (request.output.size() >= request.max_new_tokens) {
    FinishRequest(index, Finish::kLength);
  }
}

void Scheduler::Advance(ScheduledRequest& request) {
  if (generator_ == nullptr) {
    request.error = "this engine cannot generate";
    return;
  }
  std::vector<TokenId> tokens;
  if (request.cache.position_count() == 0) {  // the first step, or the first after a retraction
    tokens = request.prompt;
    tokens.insert(tokens.end(), request.output.begin(), request.output.end());
  } else {
    tokens.push_back(request.output.back());
  }
  const Result<std::span<const float>> logits = generator_->Forward(request.cache, tokens);
  if (!logits.has_value()) {
    request.error = logits.status().message();
    return;
  }
  if (request.max_new_tokens == 0) {
    return;
  }
  const TokenId token = request.sampler.Choose(*logits);
  request.log_probabilities.push_back(LogProbability(*logits, token));
  ExtendSpan(request.versions, label_, request.output.size());
  request.output.push_back(token);
}

void Scheduler::FinishRequest(std::size_t index, ScheduledRequest::Finish finish) {
  running_[index]->finish = finish;
  running_[index]->done = true;
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  if (next_ > index) {
    --next_;
  }
  ++messages_;
  changed_.notify_all();
}

}  // namespace refit::engine::reference
