// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/traffic.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "refit/base/str.h"
#include "refit/engine/sglang/sglang_engine.h"
#include "refit/exec/clock.h"

namespace refit::runtime {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(30);  // between an answer and the next question
constexpr Duration kAnswerDeadline = std::chrono::seconds(60);

}  // namespace

// ---- the judge

void TrafficJudge::Add(WeightVersion version, Instant asked, Instant answered, std::vector<std::int32_t> truth) {
  const std::string label = StrCat(version);
  if (published_.emplace(label, Published{asked, answered, std::move(truth)}).second) {
    order_.push_back(label);
  }
}

bool TrafficJudge::IsStale(const TrafficAnswer& answer) const {
  return std::none_of(answer.said.versions.begin(), answer.said.versions.end(), [&](const auto& span) {
    const auto place = std::find(order_.begin(), order_.end(), span.version);
    if (place == order_.end() || published_.at(span.version).asked > answer.ended) {
      return false;
    }
    const auto next = std::next(place);
    return next == order_.end() || published_.at(*next).answered >= answer.arrived;
  });
}

// Its first span must be its version's. Later ones go on from tokens that only this answer has.
bool TrafficJudge::IsMixed(const TrafficAnswer& answer) const {
  if (answer.said.versions.empty()) {
    return true;
  }
  const engine::VersionSpan& first = answer.said.versions.front();
  const auto found = published_.find(first.version);
  const auto end = static_cast<std::ptrdiff_t>(std::min(first.end, answer.said.token_ids.size()));
  return found == published_.end() || static_cast<std::size_t>(end) > found->second.truth.size() ||
         !std::equal(answer.said.token_ids.begin(), answer.said.token_ids.begin() + end, found->second.truth.begin());
}

TrafficCounts TrafficJudge::Judge(const std::vector<TrafficAnswer>& answers) const {
  TrafficCounts counts;
  for (const TrafficAnswer& answer : answers) {
    ++counts.answers;
    counts.spanning += answer.said.versions.size() > 1 ? 1U : 0U;
    const bool stale = IsStale(answer);
    const bool mixed = IsMixed(answer);
    counts.stale += stale ? 1U : 0U;
    counts.mixed += mixed ? 1U : 0U;
    if ((stale || mixed) && counts.worst.empty()) {
      counts.worst = StrCat("engine ", answer.slot, " gave a ", stale ? "stale" : "mixed", " answer of version ",
                            answer.said.versions.empty() ? "?" : answer.said.versions.front().version);
    }
  }
  return counts;
}

// ---- the traffic

Traffic::Traffic(std::vector<std::int32_t> prompt, std::uint32_t max_new_tokens)
    : prompt_(std::move(prompt)), max_new_tokens_(max_new_tokens) {}

void Traffic::Send(SlotIndex slot, const std::string& url) {
  state_.With([&](State& state) { state.urls[slot] = url; });
  if (!clients_.contains(slot)) {
    clients_.emplace(slot, std::thread([this, slot] { Run(slot); }));
  }
}

void Traffic::Stop() {
  state_.With([](State& state) { state.over = true; });
  for (auto& [slot, client] : std::exchange(clients_, {})) {
    client.join();
  }
}

std::vector<TrafficAnswer> Traffic::Take() {
  return state_.With([](State& state) { return std::exchange(state.answers, {}); });
}

std::uint64_t Traffic::failed() const {
  return state_.With([](const State& state) { return state.failed; });
}

void Traffic::Run(SlotIndex slot) {
  const auto is_over = [](const State& state) { return state.over; };
  while (!state_.Wait(is_over, exec::Now() + kPause)) {
    const std::string url = state_.With([slot](State& state) { return state.urls[slot]; });
    if (url.empty()) {
      continue;
    }
    const Instant arrived = exec::Now();
    const auto engine = engine::sglang::ConnectSglang({.url = url, .admin_key = {}});
    auto said = engine.has_value()
                    ? (*engine)->Generate({.text = {}, .token_ids = prompt_, .max_new_tokens = max_new_tokens_},
                                          kAnswerDeadline)
                    : Result<engine::Generation>(engine.status());
    state_.With([&](State& state) {
      if (said.has_value() && !said->token_ids.empty()) {
        state.answers.push_back({slot, arrived, exec::Now(), *std::move(said)});
      } else {
        ++state.failed;
      }
    });
  }
}

}  // namespace refit::runtime
